//! The shared types of Hermes, used by every other crate. No I/O.
//!
//! | module | what it names |
//! |---|---|
//! | [`image`] | images as bytes and as parts of a message |
//! | [`ids`] | session, turn, row identifiers |
//! | [`message`] | what a conversation is made of |
//! | [`model`] | what a model call takes and yields; routes; errors |
//! | [`usage`] | tokens and money |
//! | [`tool`] | tools, their effects, calls and outcomes |
//! | [`tool_traits`] | what is known of the built-in tools by name |
//! | [`args`] | reading the arguments of a call |
//! | [`edit`] | finding and replacing text that was written from memory |
//! | [`approval`] | questions that only a person may answer |
//! | [`event`] | what leaves a session ([`event::AgentEvent`]) and what enters ([`event::AgentCommand`]) |
//! | [`front_end`] | what a conversation shows beside its events |
//! | [`figures`] | amounts as people read them |
//! | [`store`] | the persistence a session needs ([`store::SessionStore`]) |
//! | [`slash`] | commands that begin with a slash |
//! | [`clock`] | injected time and randomness |
//! | [`open_texts`], [`command_host`] | files and terminals of an editor |
//! | [`bytes`] | bytes as digits; comparing secrets |
//! | [`paths`] | paths as text |
//! | [`redact`] | hiding secrets in text |
//! | [`private`] | which files of a person are private, which run by themselves later |
//! | [`programs`] | where Hermes looks for programs that it runs itself |
//! | [`fence`] | marking text from outside |
//! | [`taint`] | lasting changes after reading from outside |
//! | [`job_check`] | what a scheduled job may say |
//! | [`threat_scan`] | text that tries to instruct the model |
//! | [`text`] | cutting and escaping texts |
//! | [`task`] | the one way to start a background task |

pub mod approval;
pub mod args;
pub mod ask;
pub mod bytes;
pub mod clock;
pub mod command_host;
pub mod edit;
pub mod event;
pub mod fence;
pub mod figures;
pub mod front_end;
pub mod ids;
pub mod image;
pub mod job_check;
pub mod message;
pub mod model;
pub mod open_texts;
pub mod paths;
pub mod private;
pub mod programs;
pub mod redact;
pub mod slash;
pub mod store;
pub mod taint;
pub mod task;
pub mod text;
pub mod threat_scan;
pub mod tool;
pub mod tool_traits;
pub mod usage;

/// A boxed, sendable future: what object-safe async trait methods return.
pub type BoxFuture<'a, T> = futures_util::future::BoxFuture<'a, T>;
