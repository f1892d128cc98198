# Sums by key, and at the end of each file sorts by insertion and prints.
{ sum[substr($1, 1, 3)] += $3; length_of[length($2)]++ }
FNR % 6000 == 0 {
    n = 0
    for (key in sum) { order[++n] = key }
    for (i = 2; i <= n; i++) {
        key = order[i]
        for (j = i - 1; j > 0 && sum[order[j]] > sum[key]; j--) order[j + 1] = order[j]
        order[j + 1] = key
    }
    for (i = 1; i <= 20; i++) printf "%s %d\n", order[i], sum[order[i]]
    split("", sum)
}
