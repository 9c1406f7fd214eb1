//! What an item costs besides its arrays.

use super::*;
use crate::replay::settings::Staleness;

#[test]
fn an_item_takes_at_most_128_bytes_whatever_the_selectors() {
    // Just beyond a power of two, so that the map of keys is at its emptiest.
    let max_size = 50_000;
    let slots = max_size + 64;
    let all = [
        Selector::Fifo,
        Selector::Lifo,
        Selector::Uniform,
        prioritized(0.6),
        Selector::MinHeap,
        Selector::MaxHeap,
    ];
    let mut most = 0.0_f64;
    for sampler in all {
        for remover in all {
            let staleness = Staleness { max: Some(9), ..Staleness::default() };
            let spec = ReplaySpec { staleness, ..spec(sampler, remover, max_size) };
            let mut index = index(&spec, slots);
            let mut rng = seeded(1);
            for slot in 0..max_size {
                index.insert(slot, &arrival(slot.into(), 1.0), NOW, &mut rng).unwrap();
            }
            let mut picks = Vec::new();
            index.sample(1024, NOW, &mut rng, &mut picks);
            index.least_probability();
            most = most.max(index.bytes() as f64 / f64::from(max_size));
        }
    }
    assert!(most <= 128.0, "{most} bytes");
    // And what is counted is not nothing: the record alone takes this much.
    assert!(most >= 56.0, "{most} bytes");
}
