//! Projects the log to the messages that are sent to the provider: a pure function of the log.
//!
//! Repairs that strict servers need happen here and only here: results without a call are
//! dropped, calls without a result get one, neighbours of one role are merged, answers that hold
//! nothing but thoughts are left out. Text is shared with the log; only repaired messages are
//! built again. The same log gives the same view, and appending to a log whose last request was
//! answered leaves the old view a prefix: that is what keeps prompt caches warm.

use std::sync::Arc;

use hermes_core::message::{
    AssistantMessage, Content, FinishReason, INTERRUPTED, Message, Part, ToolMessage, UserMessage,
};

use crate::log::{LogItem, Origin, Synthetic};

/// What the receiver can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewCaps {
    /// Provider id: verbatim blocks of other issuers are left out.
    pub provider: String,
    pub images: ImageRule,
    /// `false`: tool results are sent as plain text.
    pub tool_parts: bool,
    /// `false`: no reasoning is sent back at all (the provider refused what it was sent).
    pub reasoning: bool,
}

impl ViewCaps {
    /// Everything goes to this provider.
    pub(crate) fn all(provider: impl Into<String>) -> Self {
        Self {
            provider: provider.into(),
            images: ImageRule::All,
            tool_parts: true,
            reasoning: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageRule {
    All,
    /// Inline images whose URL is longer than this are replaced by a note.
    UpTo(usize),
    None,
}

const NO_RESULT: &str = "[No result was recorded for this call: it was interrupted before it finished. Whether it had any effect is not known.]";
const IMAGE_LEFT_OUT: &str = "[image left out: this model cannot read it]";

/// The messages of a request, oldest first.
pub(crate) fn project(items: &[LogItem], caps: &ViewCaps) -> Vec<Arc<Message>> {
    let mut view = ProjectedRows {
        out: Vec::with_capacity(items.len()),
        open: Vec::new(),
        caps,
    };
    for item in items {
        view.add(item);
    }
    view.answer_open_calls();
    view.out
}

struct ProjectedRows<'a> {
    out: Vec<Arc<Message>>,
    /// Calls of the last assistant message that have no result yet: id and tool name.
    open: Vec<(&'a str, &'a str)>,
    caps: &'a ViewCaps,
}

impl<'a> ProjectedRows<'a> {
    fn add(&mut self, item: &'a LogItem) {
        match &*item.message {
            Message::User(user) => {
                self.answer_open_calls();
                self.add_user(&item.message, user);
            }
            Message::Assistant(assistant) => {
                self.answer_open_calls();
                let placeholder = item.origin == Origin::Synthetic(Synthetic::Placeholder);
                if placeholder || says_something(assistant) {
                    self.add_assistant(&item.message, assistant);
                }
            }
            Message::Tool(tool) => self.add_tool(&item.message, tool),
        }
    }

    fn add_user(&mut self, shared: &Arc<Message>, user: &UserMessage) {
        let fitted = self.fit_content(&user.content);
        // `make_mut` copies a message that the log shares, once; further neighbours are added
        // in place, so that merging stays linear.
        if let Some(last) = self.out.last_mut()
            && matches!(**last, Message::User(_))
            && let Message::User(before) = Arc::make_mut(last)
        {
            merge_user(before, user, fitted.as_ref().unwrap_or(&user.content));
        } else if let Some(content) = fitted {
            let wire_text = user.wire_text.clone();
            self.out
                .push(Arc::new(Message::User(UserMessage { content, wire_text })));
        } else {
            self.out.push(Arc::clone(shared));
        }
    }

    fn add_assistant(&mut self, shared: &Arc<Message>, assistant: &'a AssistantMessage) {
        self.open = assistant
            .tool_calls
            .iter()
            .map(|call| (call.id.as_str(), call.name.as_str()))
            .collect();
        let fitted = self.fit_assistant(assistant);
        if let Some(last) = self.out.last_mut()
            && matches!(&**last, Message::Assistant(before) if before.tool_calls.is_empty())
            && let Message::Assistant(before) = Arc::make_mut(last)
        {
            merge_assistant(before, fitted.as_ref().unwrap_or(assistant));
        } else {
            self.out.push(match fitted {
                Some(message) => Arc::new(Message::Assistant(message)),
                None => Arc::clone(shared),
            });
        }
    }

    fn add_tool(&mut self, shared: &Arc<Message>, tool: &ToolMessage) {
        let Some(at) = self.open.iter().position(|(id, _)| *id == tool.call_id) else {
            return;
        };
        self.open.remove(at);
        let plain = !self.caps.tool_parts && matches!(tool.content, Content::Parts(_));
        let content = if plain {
            Some(Content::Text(tool.content.text().into_owned()))
        } else {
            self.fit_content(&tool.content)
        };
        self.out.push(match content {
            Some(content) => Arc::new(Message::Tool(ToolMessage {
                content,
                ..tool.clone()
            })),
            None => Arc::clone(shared),
        });
    }

    fn answer_open_calls(&mut self) {
        for (call_id, name) in self.open.drain(..) {
            self.out.push(Arc::new(Message::Tool(ToolMessage {
                call_id: call_id.to_owned(),
                name: name.to_owned(),
                content: Content::Text(NO_RESULT.to_owned()),
                disposition: None,
            })));
        }
    }

    /// `None`: it may be sent as it is.
    fn fit_content(&self, content: &Content) -> Option<Content> {
        let Content::Parts(parts) = content else {
            return None;
        };
        let too_much = |part: &Part| match (part, self.caps.images) {
            (Part::Image { .. }, ImageRule::None) => true,
            (Part::Image { image_url, .. }, ImageRule::UpTo(limit)) => image_url.url.len() > limit,
            _ => false,
        };
        if !parts.iter().any(too_much) {
            return None;
        }
        let fit = |part: &Part| {
            if too_much(part) {
                Part::text(IMAGE_LEFT_OUT)
            } else {
                part.clone()
            }
        };
        Some(Content::Parts(parts.iter().map(fit).collect()))
    }

    /// `None`: it may be sent as it is.
    fn fit_assistant(&self, message: &AssistantMessage) -> Option<AssistantMessage> {
        let own = |issuer: &Option<String>| {
            self.caps.reasoning && issuer.as_ref().is_none_or(|id| *id == self.caps.provider)
        };
        let foreign = message.blobs.iter().any(|blob| !own(&blob.issuer));
        let sealed = message.tool_calls.iter().any(|call| call.extra.is_some());
        let unwanted = !self.caps.reasoning && (message.reasoning.is_some() || sealed);
        if !foreign && !unwanted {
            return None;
        }
        let mut fitted = AssistantMessage {
            blobs: Vec::new(),
            reasoning: None,
            ..message.clone()
        };
        fitted.blobs = message
            .blobs
            .iter()
            .filter(|blob| own(&blob.issuer))
            .cloned()
            .collect();
        if self.caps.reasoning {
            fitted.reasoning.clone_from(&message.reasoning);
        } else {
            // Signatures of calls are reasoning, too.
            for call in &mut fitted.tool_calls {
                call.extra = None;
            }
        }
        Some(fitted)
    }
}

fn says_something(message: &AssistantMessage) -> bool {
    !message.tool_calls.is_empty() || !message.text.trim().is_empty()
}

fn merge_user(before: &mut UserMessage, now: &UserMessage, content: &Content) {
    if before.wire_text.is_some() || now.wire_text.is_some() {
        let wire = before
            .wire_text
            .get_or_insert_with(|| before.content.text().into_owned());
        wire.push_str("\n\n");
        match &now.wire_text {
            Some(text) => wire.push_str(text),
            None => wire.push_str(&content.text()),
        }
    }
    match (&mut before.content, content) {
        (Content::Text(text), Content::Text(more)) => {
            text.push_str("\n\n");
            text.push_str(more);
        }
        (Content::Parts(parts), more) => parts.extend(parts_of(more)),
        (Content::Text(text), Content::Parts(more)) => {
            let mut parts = vec![Part::text(std::mem::take(text))];
            parts.extend_from_slice(more);
            before.content = Content::Parts(parts);
        }
    }
}

fn parts_of(content: &Content) -> Vec<Part> {
    match content {
        Content::Text(text) => vec![Part::text(text.clone())],
        Content::Parts(parts) => parts.clone(),
    }
}

fn merge_assistant(before: &mut AssistantMessage, now: &AssistantMessage) {
    // An answer that was cut continues in the middle of a word.
    let cut = match &before.finish {
        Some(FinishReason::Length | FinishReason::Cut | FinishReason::Incomplete) => true,
        Some(FinishReason::Other(why)) => why != INTERRUPTED,
        _ => false,
    };
    if !cut && !before.text.is_empty() && !now.text.is_empty() {
        before.text.push_str("\n\n");
    }
    before.text.push_str(&now.text);
    match (&mut before.reasoning, &now.reasoning) {
        (Some(text), Some(more)) => {
            text.push_str("\n\n");
            text.push_str(more);
        }
        (none, more) => {
            if none.is_none() {
                none.clone_from(more);
            }
        }
    }
    if before.written_by != now.written_by {
        before.written_by = None;
    }
    before.tool_calls.clone_from(&now.tool_calls);
    before.finish.clone_from(&now.finish);
    before.blobs.extend_from_slice(&now.blobs);
}

#[cfg(test)]
mod tests;
