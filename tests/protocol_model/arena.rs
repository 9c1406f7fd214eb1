//! All states that were found, packed, numbered in the order of finding, and a hash table over them.

use crate::packing::MAX_WORDS_A_STATE;

/// States in one piece of memory: pieces, and not one vector, so that growing copies nothing.
const STATES_A_PIECE: usize = 1 << 14;
const EMPTY: u32 = u32::MAX;

pub struct Arena {
    words_a_state: usize,
    pieces: Vec<Vec<u64>>,
    len: usize,
    /// Numbers of states, by hash; open addressing, at most half full.
    table: Vec<u32>,
}

impl Arena {
    pub fn new(words_a_state: usize) -> Arena {
        Arena { words_a_state, pieces: Vec::new(), len: 0, table: vec![EMPTY; 1 << 16] }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The packed state of a number.
    pub fn get(&self, number: usize) -> &[u64] {
        let start = number % STATES_A_PIECE * self.words_a_state;
        &self.pieces[number / STATES_A_PIECE][start..start + self.words_a_state]
    }

    /// The number of a state, and whether it is new.
    pub fn insert(&mut self, packed: &[u64; MAX_WORDS_A_STATE]) -> (u32, bool) {
        let packed = &packed[..self.words_a_state];
        let mask = self.table.len() - 1;
        let mut place = hash(packed) as usize & mask;
        while self.table[place] != EMPTY {
            let number = self.table[place];
            if self.get(number as usize) == packed {
                return (number, false);
            }
            place = (place + 1) & mask;
        }
        let number = u32::try_from(self.len).expect("fewer than 2^32 states");
        self.table[place] = number;
        if self.len.is_multiple_of(STATES_A_PIECE) {
            self.pieces.push(Vec::with_capacity(STATES_A_PIECE * self.words_a_state));
        }
        self.pieces.last_mut().expect("a piece with room").extend_from_slice(packed);
        self.len += 1;
        if self.len * 2 > self.table.len() {
            self.grow_table();
        }
        (number, true)
    }

    fn grow_table(&mut self) {
        let len = self.table.len() * 2;
        self.table = Vec::new(); // give the old one back first
        let mut table = vec![EMPTY; len];
        for number in 0..self.len {
            let mut place = hash(self.get(number)) as usize & (len - 1);
            while table[place] != EMPTY {
                place = (place + 1) & (len - 1);
            }
            table[place] = number as u32;
        }
        self.table = table;
    }
}

/// Multiply and fold, a word at a time. The inputs are not hostile.
fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, &word| {
        let product = u128::from(hash ^ word) * 0xff51_afd7_ed55_8ccd;
        (product >> 64) as u64 ^ product as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_its_number_while_the_table_grows() {
        let mut arena = Arena::new(2);
        let packed = |number: u64| {
            let mut words = [0; MAX_WORDS_A_STATE];
            words[..2].copy_from_slice(&[number, number * number]);
            words
        };
        for number in 0..100_000 {
            assert_eq!(arena.insert(&packed(number)), (number as u32, true));
        }
        for number in 0..100_000 {
            assert_eq!(arena.insert(&packed(number)), (number as u32, false));
        }
        assert_eq!(arena.get(77_777), &[77_777, 77_777 * 77_777]);
    }
}
