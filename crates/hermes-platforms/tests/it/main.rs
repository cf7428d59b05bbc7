//! The adapters, against fakes of their platforms.

#[cfg(test)]
mod discord;
#[cfg(test)]
mod email;
#[cfg(test)]
mod slack;
#[cfg(test)]
mod telegram;
#[cfg(test)]
mod webhook;
