group_by(.k) | map({k: .[0].k, n: length, s: (map(.v) | add), t: (map(.t[]) | unique | length)}) | sort_by(.s) | map(select(.n > 1)) | tojson | fromjson | length
