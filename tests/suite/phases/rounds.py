# Parses, sorts, multiplies and counts, in rounds.
import sys

lines = open(sys.argv[1]).read().splitlines()[:4000]
for _ in range(8):
    rows = [line.split() for line in lines]
    rows.sort(key=lambda row: (row[1], int(row[2])))
    counts = {}
    for row in rows:
        for letter in row[3]:
            counts[letter] = counts.get(letter, 0) + 1
    n = 24
    a = [[(i * j) % 7 for j in range(n)] for i in range(n)]
    b = [[sum(a[i][k] * a[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
    print(sum(map(sum, b)), sorted(counts.items())[:3])
