//! Randomness from outside: whoever draws passes a source of random words in.
//!
//! Selection is deterministic given that source, so a test with a fixed seed always draws the same. Bounded integers
//! are unbiased (Lemire's method: a multiplication, and a rare second word); a fraction has 53 random bits and is
//! below 1.

/// A source of uniform random words. Every `FnMut() -> u64` is one.
pub trait Rng {
    /// The next word.
    fn word(&mut self) -> u64;

    /// A number below `n`, each as likely as another.
    ///
    /// # Panics
    /// If `n` is zero.
    fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0, "nothing is below zero");
        let n = u64::from(n);
        let mut product = (self.word() >> 32) * n;
        // Of the 2^32 low halves, 2^32 mod n belong to results that would come up once too often.
        if u64::from(product as u32) < n {
            let surplus = (1_u64 << 32) % n;
            while u64::from(product as u32) < surplus {
                product = (self.word() >> 32) * n;
            }
        }
        (product >> 32) as u32
    }

    /// A number from 0 up to but not including 1: a multiple of 2^-53.
    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

impl<F: FnMut() -> u64> Rng for F {
    #[inline]
    fn word(&mut self) -> u64 {
        self()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_would_bias_a_small_range_are_drawn_again() {
        // 2^32 mod 3 = 1: of all upper halves only zero is surplus.
        let mut words = [0_u64, 0, u64::MAX].into_iter();
        assert_eq!((|| words.next().unwrap()).below(3), 2);
        assert_eq!(words.next(), None, "both zeros were refused");
    }

    #[test]
    fn every_number_of_a_range_can_come_and_none_beyond() {
        let mut source = fastrand::Rng::with_seed(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[(|| source.u64(..)).below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!((|| u64::MAX).below(u32::MAX), u32::MAX - 1);
        assert_eq!((|| 12345).below(1), 0);
    }

    #[test]
    fn a_fraction_stays_below_one() {
        assert_eq!((|| u64::MAX).unit(), 1.0_f64.next_down());
        assert_eq!((|| 0).unit(), 0.0);
    }
}
