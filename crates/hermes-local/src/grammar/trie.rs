//! The vocabulary as a trie, so that common prefixes of tokens are checked once.

/// Tokens by their bytes.
#[derive(Debug)]
pub struct Vocabulary {
    /// In depth-first order.
    pub(super) nodes: Vec<Branch>,
    /// Tokens with the same bytes are adjacent.
    pub(super) tokens: Vec<u32>,
    /// Length of the longest token in bytes.
    pub(super) longest: u32,
    /// Tokens that end an answer.
    pub(super) ends: Vec<u32>,
    pub(super) size: usize,
    pub(super) pieces: TokenBytes,
}

#[derive(Debug)]
pub(super) struct Branch {
    pub(super) byte: u8,
    /// Depth of this node in bytes.
    pub(super) depth: u16,
    /// The next node that does not share this prefix.
    pub(super) skip: u32,
    /// `tokens[first..first + count]` end here.
    pub(super) first: u32,
    pub(super) count: u16,
}

impl Vocabulary {
    /// `piece` returns the bytes of text tokens and nothing for control tokens. `ends` are the tokens that end
    /// an answer.
    pub fn new<'a>(size: usize, ends: &[u32], piece: impl Fn(u32) -> &'a [u8]) -> Self {
        let bytes = |id| if ends.contains(&id) { &[] } else { piece(id) };
        let ids = 0..size as u32;
        let mut sorted: Vec<_> = ids
            .clone()
            .map(|id| (bytes(id), id))
            .filter(|(bytes, _)| !bytes.is_empty())
            .collect();
        sorted.sort_unstable();
        let mut nodes: Vec<Branch> = Vec::new();
        let mut tokens = Vec::with_capacity(sorted.len());
        // The nodes of the last token, one per byte.
        let mut path: Vec<usize> = Vec::new();
        let mut last: &[u8] = &[];
        let mut longest = 0;
        for (bytes, id) in sorted {
            let common = last.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            for open in path.drain(common.min(bytes.len())..) {
                nodes[open].skip = nodes.len() as u32;
            }
            for (offset, byte) in bytes.iter().enumerate().skip(common) {
                path.push(nodes.len());
                nodes.push(Branch {
                    byte: *byte,
                    depth: offset as u16 + 1,
                    skip: 0,
                    first: tokens.len() as u32,
                    count: 0,
                });
            }
            if let Some(node) = path.last() {
                nodes[*node].count += 1;
            }
            tokens.push(id);
            longest = longest.max(bytes.len() as u32);
            last = bytes;
        }
        let all = nodes.len() as u32;
        for open in path {
            nodes[open].skip = all;
        }
        Self {
            nodes,
            tokens,
            longest,
            pieces: TokenBytes::new(ids.map(bytes)),
            ends: ends.to_vec(),
            size,
        }
    }

    /// The bytes of a token; empty for control tokens.
    pub fn piece(&self, token: u32) -> &[u8] {
        self.pieces.get(token)
    }
}

/// The bytes of all tokens, concatenated.
#[derive(Debug, Default)]
pub(super) struct TokenBytes {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl TokenBytes {
    fn new<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = Self::default();
        for piece in pieces {
            all.bytes.extend_from_slice(piece);
            all.ends.push(all.bytes.len() as u32);
        }
        all
    }

    pub(super) fn get(&self, token: u32) -> &[u8] {
        let at = |index: usize| self.ends.get(index).copied().unwrap_or(0) as usize;
        let token = token as usize;
        let start = token.checked_sub(1).map_or(0, at);
        self.bytes.get(start..at(token)).unwrap_or_default()
    }
}
