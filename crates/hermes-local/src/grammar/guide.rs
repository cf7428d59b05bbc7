//! Follows a grammar token by token and computes which tokens may come next.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::node::Grammar;
use super::state::{GrammarFrame, GrammarState, enter};
use super::trie::Vocabulary;
use crate::engine::Constraint;

/// Maximum number of cached masks of one grammar.
const MAX_CACHED_MASKS: usize = 256;

/// A grammar with the masks of its states, shared by all answers that follow it.
pub struct MaskedGrammar {
    vocabulary: Rc<Vocabulary>,
    grammar: Grammar,
    masks: RefCell<HashMap<Vec<GrammarState>, Rc<Mask>>>,
}

/// The tokens that may come next.
struct Mask {
    allowed: Vec<u64>,
    /// Maximum increase of the bytes needed for completion after a token.
    growth: u32,
    any: bool,
}

impl MaskedGrammar {
    pub fn new(vocabulary: Rc<Vocabulary>, grammar: Grammar) -> Rc<Self> {
        Rc::new(Self {
            vocabulary,
            grammar,
            masks: RefCell::default(),
        })
    }

    pub fn grammar(&self) -> &Grammar {
        &self.grammar
    }

    fn shortest(&self, states: &[GrammarState]) -> u32 {
        let lengths = states.iter().map(|state| state.shortest(&self.grammar));
        lengths.min().unwrap_or(u32::MAX)
    }

    fn mask(&self, states: &[GrammarState]) -> Rc<Mask> {
        let key = self.alike(states);
        if let Some(mask) = self.masks.borrow().get(&key) {
            return Rc::clone(mask);
        }
        let mask = Rc::new(self.look(states, u32::MAX));
        let mut masks = self.masks.borrow_mut();
        if masks.len() >= MAX_CACHED_MASKS {
            masks.clear();
        }
        masks.insert(key, Rc::clone(&mask));
        mask
    }

    /// A key that is equal for states that allow the same tokens: the remaining length of a string matters only
    /// if a token could use it up.
    fn alike(&self, states: &[GrammarState]) -> Vec<GrammarState> {
        let mut key = states.to_vec();
        if let [state] = &mut key[..]
            && let GrammarFrame::String { need, left, .. } = &mut state.top
        {
            let far = self.vocabulary.longest + 1;
            *need = (*need).min(far);
            *left = (*left).min(far);
        }
        key
    }

    /// Walks the vocabulary. Tokens after which more than `available` bytes are needed are excluded.
    fn look(&self, states: &[GrammarState], available: u32) -> Mask {
        let vocabulary = &*self.vocabulary;
        let mut allowed = vec![0_u64; vocabulary.size.div_ceil(64)];
        let before = self.shortest(states);
        let mut growth = 0_u32;
        let mut any = false;
        // The states after each byte of the current path.
        let mut levels: Vec<Vec<GrammarState>> = vec![states.to_vec()];
        let mut index = 0;
        while let Some(branch) = vocabulary.nodes.get(index) {
            let depth = usize::from(branch.depth);
            if levels.len() <= depth {
                levels.push(Vec::new());
            }
            let (above, below) = levels.split_at_mut(depth);
            let there = &mut below[0];
            there.clear();
            step(&self.grammar, &above[depth - 1], branch.byte, there);
            if there.is_empty() {
                index = branch.skip as usize;
                continue;
            }
            if branch.count > 0 {
                let after = self.shortest(there);
                if after <= available {
                    growth = growth.max(after.saturating_sub(before));
                    any = true;
                    let tokens = branch.first as usize..;
                    for token in &vocabulary.tokens[tokens][..usize::from(branch.count)] {
                        allowed[*token as usize / 64] |= 1 << (token % 64);
                    }
                }
            }
            index += 1;
        }
        Mask {
            allowed,
            growth,
            any,
        }
    }
}

/// All states after one more byte.
fn step(grammar: &Grammar, states: &[GrammarState], byte: u8, out: &mut Vec<GrammarState>) {
    for state in states {
        state.step(grammar, byte, out);
    }
    if out.len() > 1 {
        let mut index = 1;
        while index < out.len() {
            if out[..index].contains(&out[index]) {
                out.swap_remove(index);
            } else {
                index += 1;
            }
        }
    }
}

/// One answer that follows a grammar.
pub struct GrammarGuide {
    guided: Rc<MaskedGrammar>,
    states: Vec<GrammarState>,
    /// Tokens that may still be written.
    left: u32,
    ended: bool,
    lost: bool,
}

impl GrammarGuide {
    /// `tokens` is the number of tokens that may be written: unless it is too small from the start, the text is
    /// complete before they are used up.
    pub fn new(guided: &Rc<MaskedGrammar>, tokens: usize) -> Self {
        let mut states = Vec::new();
        enter(&guided.grammar, guided.grammar.root, &None, &mut states);
        Self {
            guided: Rc::clone(guided),
            states,
            left: u32::try_from(tokens).unwrap_or(u32::MAX),
            ended: false,
            lost: false,
        }
    }

    /// Number of tokens that complete the text, if each is one byte.
    pub fn shortest(&self) -> usize {
        self.guided.shortest(&self.states) as usize
    }

    fn can_end(&self) -> bool {
        let grammar = &self.guided.grammar;
        self.states.iter().any(|state| state.can_end(grammar))
    }

    /// Whether the text is complete.
    pub fn complete(&self) -> bool {
        !self.lost && self.can_end()
    }

    /// The vocabulary has no token for what must come next.
    pub fn lost(&self) -> bool {
        self.lost
    }
}

impl Constraint for GrammarGuide {
    fn mask(&mut self, logits: &mut [f32]) {
        let guided = &self.guided;
        let shortest = guided.shortest(&self.states);
        let available = self.left.saturating_sub(1);
        let mut mask = guided.mask(&self.states);
        if shortest <= self.left && shortest.saturating_add(mask.growth) > available {
            mask = Rc::new(guided.look(&self.states, available));
        }
        let can_end = self.can_end();
        if !mask.any && !can_end {
            self.lost = true;
        }
        let ends = &guided.vocabulary.ends;
        let end_logits: Vec<f32> = ends
            .iter()
            .map(|end| {
                logits
                    .get(*end as usize)
                    .copied()
                    .unwrap_or(f32::NEG_INFINITY)
            })
            .collect();
        for (chunk, bits) in logits.chunks_mut(64).zip(&mask.allowed) {
            if *bits == u64::MAX {
                continue;
            }
            for (offset, logit) in chunk.iter_mut().enumerate() {
                if bits & (1 << offset) == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        // A vocabulary may be padded beyond its tokens.
        let padding = mask.allowed.len() * 64;
        for logit in logits.iter_mut().skip(padding) {
            *logit = f32::NEG_INFINITY;
        }
        if can_end || self.lost {
            for (end, end_logits) in ends.iter().zip(end_logits) {
                if let Some(logit) = logits.get_mut(*end as usize) {
                    // The only possible token must stay possible.
                    *logit = if mask.any {
                        end_logits
                    } else {
                        end_logits.max(0.0)
                    };
                }
            }
        }
        if self.lost
            && ends.is_empty()
            && let Some(logit) = logits.first_mut()
        {
            *logit = 0.0;
        }
    }

    fn accept(&mut self, token: u32) {
        self.left = self.left.saturating_sub(1);
        if self.guided.vocabulary.ends.contains(&token) {
            self.ended = true;
            return;
        }
        let mut next = Vec::new();
        for byte in self.guided.vocabulary.pieces.get(token) {
            next.clear();
            step(&self.guided.grammar, &self.states, *byte, &mut next);
            std::mem::swap(&mut self.states, &mut next);
        }
        if self.states.is_empty() {
            self.lost = true;
        }
    }

    fn finished(&self) -> bool {
        let done = |state: &GrammarState| state.top == GrammarFrame::Done;
        self.ended || self.lost || (!self.states.is_empty() && self.states.iter().all(done))
    }
}
