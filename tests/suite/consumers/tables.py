"""Reads exported tables with pyarrow and DuckDB and prints what both find in them as JSON: `tables.py FOLDER`.

FOLDER has NAME.parquet and NAME.csv of tables, written by `hpmctl export --format parquet` and `csv`.
"""

import glob
import json
import os
import sys

import duckdb
import pyarrow.parquet

folder = sys.argv[1]
found = {}
for path in sorted(glob.glob(os.path.join(folder, "*.parquet"))):
    name = os.path.basename(path).removesuffix(".parquet")
    table = pyarrow.parquet.read_table(path)
    meta = json.loads(pyarrow.parquet.read_metadata(path).metadata[b"hpm.meta"])
    csv = path.removesuffix("parquet") + "csv"
    entry = {
        "rows": table.num_rows,
        "rows_in_meta": meta["rows"].get(name, 0),
        "rows_duckdb": duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall()[0][0],
        "rows_csv": duckdb.sql(f"SELECT count(*) FROM read_csv('{csv}', header = true, all_varchar = true)").fetchall()[0][0],
    }
    if name == "samples":
        events = [event["name"] for event in meta["events"]]
        sums = duckdb.sql(f"SELECT event, count(*), sum(period)::BIGINT FROM '{path}' GROUP BY event ORDER BY event").fetchall()
        entry["events"] = {events[event]: [samples, total] for event, samples, total in sums}
    if name == "quanta":
        events = [event["name"] for event in meta["events"]]
        lists = table.column("counts").to_pylist()
        entry["counts"] = {event: sum(counts[i] for counts in lists) for i, event in enumerate(events)}
        columns = ", ".join(f'sum("counts.{event}"::BIGINT)::BIGINT' for event in events)
        row = duckdb.sql(f"SELECT {columns} FROM read_csv('{csv}', header = true, all_varchar = true)").fetchall()[0]
        entry["counts_csv"] = dict(zip(events, row))
        entry["totals"] = dict(zip(events, (meta["totals"] or {}).get("counts", [])))
    found[name] = entry
print(json.dumps(found))
