//! How much of a file one call shows.

use hermes_config::Config;

/// Limits of one page of `read_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    pub lines: usize,
    pub line_chars: usize,
    /// For the whole page including line numbers (`file_read_max_chars`).
    pub chars: usize,
}

impl ReadLimits {
    pub fn from_config(config: &Config) -> Self {
        let output = &config.tool_output;
        Self {
            lines: (output.max_lines as usize).clamp(1, 2_000),
            line_chars: (output.max_line_length as usize).max(80),
            chars: (config.file_read_max_chars as usize).max(1_000),
        }
    }
}
