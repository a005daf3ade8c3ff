//! `nearest`: which name was meant.

/// The name that differs least from what was written, if it is close enough to have been meant: one letter in three may be
/// wrong. How words are joined does not count, so `CudaAsync` is `cuda-async`.
pub(super) fn nearest<'n>(written: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let written = letters(written);
    let far = (written.len() / 3).max(1);
    names
        .map(|name| (distance(&written, &letters(name)), name))
        .filter(|(distance, _)| *distance <= far && *distance < written.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// No name is longer, and what is cannot have been meant for one.
const LONGEST: usize = 32;

fn letters(name: &str) -> Vec<char> {
    name.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).take(LONGEST).collect()
}

/// The edit distance: letters inserted, removed, changed, or swapped with the next one.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1; to.len() + 1];
        for (j, b) in to.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            row[j + 1] = changed.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from[i - 1] == *b && *a == to[j - 1] {
                row[j + 1] = row[j + 1].min(before[j - 1] + 1);
            }
        }
        before = core::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_meant() {
        let names = ["pool", "arena", "cuda", "cuda-async", "cuda-async-managed", "managed"];
        let meant = |written| nearest(written, names.into_iter());
        assert_eq!(meant("pol"), Some("pool"));
        assert_eq!(meant("polo"), Some("pool"));
        assert_eq!(meant("CudaAsync"), Some("cuda-async"));
        assert_eq!(meant("cuda_asinc"), Some("cuda-async"));
        assert_eq!(meant("manged"), Some("managed"));
        assert_eq!(meant("x"), None);
        assert_eq!(meant("hashmap"), None);
        assert_eq!(meant(&"pool".repeat(1000)), None);
    }
}
