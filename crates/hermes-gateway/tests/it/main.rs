//! The foundation of the gateway, from outside.

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod original;
#[cfg(test)]
mod pairing;
#[cfg(test)]
mod voice;
#[cfg(test)]
mod world;
