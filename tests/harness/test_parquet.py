"""A cell's tables as files: what comes back, and what it takes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness import parquet


def test_times_come_back_in_whole_nanoseconds() -> None:
    seconds = [0.1 + 0.2, 1e5 + 1 / 3, math.nan, 0.0]
    back = parquet.decode(parquet.encode(pd.DataFrame({"sent_s": seconds, "power_w": seconds})))
    assert back["sent_s"].tolist()[:2] == [0.3, 100000.333333333]
    assert math.isnan(back["sent_s"][2])
    pd.testing.assert_series_equal(back["power_w"], pd.Series(seconds, name="power_w"))


def test_what_came_back_comes_back_again() -> None:
    whole = parquet.whole_ns(np.random.default_rng(1).uniform(0, 1e4, 20_000))
    back = parquet.decode(parquet.encode(pd.DataFrame({"t_s": whole})))
    assert back["t_s"].tolist() == whole.tolist()


def test_lists_texts_counts_and_truths_come_back() -> None:
    frame = pd.DataFrame(
        {
            "chunk_s": [[0.5, 1.25], [], [2.0]],
            "chunk_tokens": [[1, 2], [], [3]],
            "status": [200, 0, -1],
            "error": ["", "gone", ""],
            "ok": [True, False, True],
        }
    )
    back = parquet.decode(parquet.encode(frame))
    lists = back[["chunk_s", "chunk_tokens"]].map(list)
    pd.testing.assert_frame_equal(back.assign(**lists), frame, check_dtype=False)


def test_a_table_without_rows_keeps_its_columns() -> None:
    frame = pd.DataFrame({"sent_s": [], "chunk_s": pd.Series([], dtype="object"), "error": []})
    back = parquet.decode(parquet.encode(frame))
    assert list(back) == list(frame)
    assert back.empty


def test_a_file_says_its_unit_and_takes_no_more_than_it_must() -> None:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"index": range(512), "sent_s": rng.uniform(0, 10, 512).cumsum()})
    data = parquet.encode(frame)
    columns = pq.ParquetFile(pa.BufferReader(data)).schema_arrow
    assert columns.names == ["index", "sent_ns"]
    assert len(data) < 8 * 512  # the times alone, as they are in memory
