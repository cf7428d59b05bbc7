//! The table of key actions: name, area, default keys, description.

/// Where an action counts. Two actions may share a key only in areas that are never open together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyArea {
    /// Wherever the composer is seen.
    Anywhere,
    /// While text is edited.
    Composer,
    /// While a turn runs; goes before [`KeyArea::Composer`].
    Busy,
    /// Lists, pages and everything else that covers the composer.
    Overlay,
}

macro_rules! actions {
    ($($(#[doc = $about:literal])+ $variant:ident $name:literal $area:ident [$($key:literal),*];)+) => {
        /// What a key can do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum KeyAction { $($(#[doc = $about])+ $variant,)+ }

        impl KeyAction {
            /// In the order of `/keys`.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As config.yaml names it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            pub fn area(self) -> KeyArea {
                match self { $(Self::$variant => KeyArea::$area,)+ }
            }

            /// What is said in `/keys` and the palette.
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => concat!($($about),+).trim_ascii(),)+ }
            }

            pub(super) fn default_keys(self) -> &'static [&'static str] {
                match self { $(Self::$variant => &[$($key,)*],)+ }
            }
        }
    };
}

actions! {
    /// Send the message; steer while a turn runs
    Submit "submit" Anywhere ["enter"];
    /// New line in the message
    Newline "newline" Composer ["shift+enter", "alt+enter", "ctrl+j"];
    /// Send after the running turn
    Queue "queue" Busy ["tab"];
    /// Close what is open, stop the running turn; twice: edit the previous message
    Interrupt "interrupt" Anywhere ["esc"];
    /// Clear the message, stop the turn, leave at the second press
    Cancel "cancel" Anywhere ["ctrl+c"];
    /// Leave when the message is empty; otherwise delete the next character
    Exit "exit" Anywhere ["ctrl+d"];
    /// All commands
    Palette "palette" Anywhere ["ctrl+p"];
    /// The keys (with an empty message)
    Help "help" Anywhere ["?", "f1"];
    /// The whole transcript
    Transcript "transcript" Anywhere ["ctrl+t"];
    /// Open another conversation
    Sessions "sessions" Anywhere ["ctrl+x"];
    /// Choose a model
    Models "models" Anywhere ["alt+m"];
    /// Copy the last reply
    CopyLast "copy_last" Anywhere ["ctrl+o"];
    /// Write the message in your editor
    Editor "editor" Anywhere ["ctrl+g"];
    /// Search earlier messages
    HistorySearch "history_search" Composer ["ctrl+r"];
    /// Show or hide reasoning
    Reasoning "reasoning" Anywhere ["alt+r"];
    /// Paste text or an image
    Paste "paste" Composer ["ctrl+v", "alt+v"];
    /// Redraw the screen
    Redraw "redraw" Anywhere ["ctrl+l"];
    /// Suspend to the shell; fg resumes
    Suspend "suspend" Anywhere ["ctrl+z"];
    /// Line above, or the earlier message
    Up "up" Composer ["up"];
    /// Line below, or the later message
    Down "down" Composer ["down"];
    /// Earlier message
    HistoryPrevious "history_previous" Composer ["alt+p"];
    /// Later message
    HistoryNext "history_next" Composer ["alt+n", "ctrl+n"];
    /// A character left
    Left "left" Composer ["left", "ctrl+b"];
    /// A character right
    Right "right" Composer ["right", "ctrl+f"];
    /// A word left
    WordLeft "word_left" Composer ["alt+b", "ctrl+left", "alt+left"];
    /// A word right
    WordRight "word_right" Composer ["alt+f", "ctrl+right", "alt+right"];
    /// Beginning of the line
    LineStart "line_start" Composer ["ctrl+a", "home"];
    /// End of the line
    LineEnd "line_end" Composer ["ctrl+e", "end"];
    /// Beginning of the message
    TextStart "text_start" Composer ["ctrl+home", "alt+<"];
    /// End of the message
    TextEnd "text_end" Composer ["ctrl+end", "alt+>"];
    /// Delete the character before
    DeleteBack "delete_back" Composer ["backspace", "ctrl+h", "shift+backspace"];
    /// Delete the character under the cursor
    DeleteForward "delete_forward" Composer ["delete"];
    /// Cut the word before
    KillWordBack "kill_word_back" Composer ["ctrl+w", "alt+backspace", "ctrl+backspace"];
    /// Cut the word after
    KillWordForward "kill_word_forward" Composer ["alt+d", "ctrl+delete"];
    /// Cut to the beginning of the line
    KillToStart "kill_to_start" Composer ["ctrl+u"];
    /// Cut to the end of the line
    KillToEnd "kill_to_end" Composer ["ctrl+k"];
    /// Put back what was cut
    Yank "yank" Composer ["ctrl+y"];
    /// After putting back: what was cut before that
    YankOlder "yank_older" Composer ["alt+y"];
    /// Undo
    Undo "undo" Composer ["ctrl+_", "ctrl+/", "super+z"];
    /// Redo
    Redo "redo" Composer ["alt+_", "alt+/", "super+shift+z"];
    /// A page up
    PageUp "page_up" Overlay ["pageup", "ctrl+b"];
    /// A page down
    PageDown "page_down" Overlay ["pagedown", "ctrl+f"];
    /// To the top
    Top "top" Overlay ["home"];
    /// To the bottom
    Bottom "bottom" Overlay ["end"];
}

impl KeyAction {
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|action| action.name() == name)
    }
}
