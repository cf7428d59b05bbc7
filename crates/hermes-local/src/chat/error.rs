#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error(
        "the model's file has no chat template, and its vocabulary lacks <|im_start|> and \
         <|im_end|>: it is not made for chat"
    )]
    NoTemplate,
    #[error("the chat template of the model's file cannot be read: {0}")]
    Unreadable(String),
    #[error("the chat template of the model's file failed: {0}")]
    Failed(String),
    #[error("the model's chat template does not take these messages: {0}")]
    Refused(String),
}

impl ChatError {
    /// The messages are invalid, not the file.
    pub fn is_about_messages(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}
