//! Regularity (§4.1): how well the distances between instances fall into clusters.

/// Most clusters: as many as the predictor keeps distances for a pattern.
const CLUSTERS_MAX: usize = 3;
/// Distances for each cluster.
const DISTANCES_PER_CLUSTER: usize = 3;
/// Lloyd's iteration moves little after a few rounds.
const ROUNDS_MAX: usize = 50;
/// D is at least one interval: a smaller difference cannot be seen.
const DEVIATION_MIN: f64 = 1.0;

/// k for so many distances.
#[must_use]
pub fn clusters(distances: usize) -> usize {
    (distances / DISTANCES_PER_CLUSTER).clamp(1, CLUSTERS_MAX)
}

/// Computes D, the sum of all distances' differences from their clusters' centroids (k-means on the line). Keeps its memory
/// from one group to the next.
#[derive(Debug, Default)]
pub struct Regularity {
    sorted: Vec<f64>,
    /// Sum of the first n sorted distances, at n.
    sums: Vec<f64>,
    ends: Vec<usize>,
}

impl Regularity {
    /// D of distances in units of an interval, with k clusters; at least 1.
    pub fn deviation(&mut self, distances: impl Iterator<Item = f64>, k: usize) -> f64 {
        self.sorted.clear();
        self.sorted.extend(distances);
        self.sorted.sort_unstable_by(f64::total_cmp);
        self.sums.clear();
        self.sums.push(0.0);
        let mut sum = 0.0;
        for distance in &self.sorted {
            sum += distance;
            self.sums.push(sum);
        }
        self.assign(k.min(self.sorted.len()).max(1));
        let mut begin = 0;
        let mut deviation = 0.0;
        for &end in &self.ends {
            deviation += self.cluster_deviation(begin, end);
            begin = end;
        }
        deviation.max(DEVIATION_MIN)
    }

    /// Lloyd's iteration. On the line a cluster is a stretch of the sorted distances: `ends` has where each one ends.
    fn assign(&mut self, k: usize) {
        // Those of the call before are no sign that nothing moves any more.
        self.ends.clear();
        let n = self.sorted.len();
        let quantile = |cluster: usize| ((2 * cluster + 1) * n / (2 * k)).min(n.saturating_sub(1));
        let mut centroids: Vec<f64> =
            (0..k).map(|cluster| self.sorted.get(quantile(cluster)).copied().unwrap_or(0.0)).collect();
        for _ in 0..ROUNDS_MAX {
            let ends: Vec<usize> = centroids
                .windows(2)
                .map(|pair| f64::midpoint(pair[0], pair[1]))
                .map(|border| self.sorted.partition_point(|&distance| distance <= border))
                .chain([n])
                .collect();
            if ends == self.ends {
                break;
            }
            self.ends = ends;
            let mut begin = 0;
            for (centroid, &end) in centroids.iter_mut().zip(&self.ends) {
                if end > begin {
                    *centroid = (self.sums[end] - self.sums[begin]) / (end - begin) as f64;
                }
                begin = end;
            }
        }
    }

    fn cluster_deviation(&self, begin: usize, end: usize) -> f64 {
        if end <= begin {
            return 0.0;
        }
        let sum = |from: usize, to: usize| self.sums[to] - self.sums[from];
        let centroid = sum(begin, end) / (end - begin) as f64;
        let middle = begin + self.sorted[begin..end].partition_point(|&distance| distance <= centroid);
        let below = centroid * (middle - begin) as f64 - sum(begin, middle);
        below + sum(middle, end) - centroid * (end - middle) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deviation(distances: &[f64], k: usize) -> f64 {
        Regularity::default().deviation(distances.iter().copied(), k)
    }

    #[test]
    fn regular_distances_have_the_least_deviation() {
        assert_eq!(deviation(&[50.0; 12], 3), 1.0);
        assert_eq!(deviation(&[10.0, 20.0, 10.0, 20.0, 30.0, 30.0], 3), 1.0);
        assert_eq!(deviation(&[], 1), 1.0);
        assert_eq!(deviation(&[7.0], 3), 1.0);
    }

    #[test]
    fn deviations_from_the_centroids_are_added_up() {
        // One cluster around 20: 10 + 0 + 10.
        assert_eq!(deviation(&[10.0, 20.0, 30.0], 1), 20.0);
        // Two clusters around 11 and 102: 1 + 1 + 2 + 2.
        assert_eq!(deviation(&[100.0, 10.0, 104.0, 12.0], 2), 6.0);
        assert_eq!(deviation(&[10.0, 12.0, 50.0, 54.0, 100.0, 108.0], 3), 14.0);
    }

    /// What was computed before leaves nothing behind, even where the first clusters have the same ends.
    #[test]
    fn the_group_before_does_not_matter() {
        let distances = [0.0, 0.0, 0.0, 6.0, 10.0, 100.0];
        let mut regularity = Regularity::default();
        regularity.deviation([1.0, 2.0, 3.0, 101.0, 102.0, 103.0].into_iter(), 2);
        let after = regularity.deviation(distances.into_iter(), 2);
        assert_eq!(after, deviation(&distances, 2));
        assert!((after - 19.2).abs() < 1e-9, "{after}");
    }

    #[test]
    fn small_groups_have_fewer_clusters() {
        assert_eq!([0, 1, 5, 6, 8, 9, 1000].map(clusters), [1, 1, 1, 2, 2, 3, 3]);
    }

    proptest! {
        /// With one cluster it is the definition.
        #[test]
        fn one_cluster_is_the_mean_deviation(distances in prop::collection::vec(0.0_f64..1000.0, 1..60)) {
            let mean = distances.iter().sum::<f64>() / distances.len() as f64;
            let expected = distances.iter().map(|distance| (distance - mean).abs()).sum::<f64>().max(1.0);
            prop_assert!((deviation(&distances, 1) - expected).abs() < 1e-6);
        }
    }
}
