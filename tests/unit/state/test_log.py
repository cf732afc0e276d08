"""The log of a flow: what was synced is read again, what was half written is cut off, and damage is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import StateError
from penstock.state.log import RecordLog
from twin.disk import DyingDisk, PowerCut


def rows(number: int) -> pa.RecordBatch:
    return pa.record_batch({"n": [number] * (number + 1), "text": [str(number)] * (number + 1)})


def written(folder: Path, count: int) -> RecordLog:
    log = RecordLog(folder)
    assert list(log.records(1)) == []
    for number in range(1, count + 1):
        log.append({"of": number}, [rows(number), rows(0)][: number % 3])
    return log


def read(folder: Path, first: int = 1) -> list[tuple[int, int, list[int]]]:
    """(number, header, rows of each batch)."""
    records = RecordLog(folder).records(first)
    return [(one.number, one.header["of"], [batch.num_rows for batch in one.batches]) for one in records]


def expected(first: int, last: int) -> list[tuple[int, int, list[int]]]:
    return [(number, number, [number + 1, 1][: number % 3]) for number in range(first, last + 1)]


def segment(folder: Path, at: int = -1) -> Path:
    return sorted(folder.glob("*.log"))[at]


def test_records_are_read_in_the_order_in_which_they_were_appended(tmp_path: Path) -> None:
    written(tmp_path, 10).close()
    assert read(tmp_path) == expected(1, 10)
    assert read(tmp_path, 7) == expected(7, 10)


def test_a_log_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    written(tmp_path, 3).close()
    log = RecordLog(tmp_path)
    assert len(list(log.records(1))) == 3
    log.append({"of": 4}, [rows(4)])
    log.close()
    assert read(tmp_path) == expected(1, 4)


def test_segments_behind_a_number_are_dropped(tmp_path: Path) -> None:
    log = written(tmp_path, 3)
    assert log.rotate() == 4
    assert log.rotate() == 4, "an empty segment is not closed"
    log.append({"of": 4}, [rows(4)])
    assert log.rotate() == 5
    log.drop_before(4)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"{4:020d}.log", f"{5:020d}.log"]
    log.close()
    assert read(tmp_path, 4) == expected(4, 4)


def test_a_gap_before_the_first_record_is_refused(tmp_path: Path) -> None:
    log = written(tmp_path, 3)
    log.rotate()
    log.drop_before(4)
    log.close()
    with pytest.raises(StateError, match="the records 2 to 3 are missing") as refused:
        read(tmp_path, 2)
    assert refused.value.code == "STATE_LOG_DAMAGED"


@pytest.mark.parametrize("lost", [1, 5, 27, 40, 200])
def test_a_record_that_was_half_written_is_cut_off(lost: int, tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    path = segment(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    assert read(tmp_path) == expected(1, 4)
    log = RecordLog(tmp_path)
    assert len(list(log.records(1))) == 4
    log.append({"of": 5}, [rows(5), rows(0)])
    log.close()
    assert read(tmp_path) == expected(1, 5)


def test_zeros_at_the_end_are_cut_off(tmp_path: Path) -> None:
    written(tmp_path, 5).close()
    with open(segment(tmp_path), "ab") as file:
        file.write(bytes(1000))
    assert read(tmp_path) == expected(1, 5)


def test_damage_anywhere_before_the_last_record_is_refused_with_its_place(tmp_path: Path) -> None:
    log = written(tmp_path, 4)
    path = segment(tmp_path)
    before_last = path.stat().st_size
    log.append({"of": 5}, [rows(5)])
    log.close()
    content = path.read_bytes()
    for at in range(before_last):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :])
        with pytest.raises(StateError, match="the log is damaged") as refused:
            read(tmp_path)
        assert refused.value.code == "STATE_LOG_DAMAGED"
        assert str(path) in str(refused.value.where)


def test_damage_in_an_older_segment_is_refused(tmp_path: Path) -> None:
    log = written(tmp_path, 3)
    log.rotate()
    log.append({"of": 4}, [rows(4)])
    log.close()
    path = segment(tmp_path, 0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StateError, match="record 3 is cut off"):
        read(tmp_path)


class FullDisk(DyingDisk):
    """Takes half of what is written, and then has no more room, until it is freed."""

    full = False
    syncs = True

    def append(self, handle: int, content: bytes) -> None:
        super().append(handle, content[: len(content) // 2] if self.full else content)
        if self.full:
            raise OSError(28, "No space left on device")

    def sync(self, handle: int) -> None:
        if not self.syncs:
            raise OSError(5, "Input/output error")
        super().sync(handle)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FullDisk(-1)
    log = RecordLog(tmp_path, files=disk)
    assert list(log.records(1)) == []
    log.append({"of": 1}, [rows(1)])
    disk.full = True
    with pytest.raises(StateError, match="No space left") as refused:
        log.append({"of": 2}, [rows(2), rows(0)])
    assert refused.value.code == "FLOW_LOG"
    disk.full = False
    log.append({"of": 2}, [rows(2), rows(0)])
    log.close()
    assert read(tmp_path) == expected(1, 2)


def test_after_a_failed_sync_the_log_takes_no_more_records(tmp_path: Path) -> None:
    disk = FullDisk(-1)
    log = RecordLog(tmp_path, files=disk)
    assert list(log.records(1)) == []
    log.append({"of": 1}, [rows(1)])
    disk.syncs = False
    for _ in range(2):
        with pytest.raises(StateError, match="takes no more ticks") as refused:
            log.append({"of": 2}, [rows(2)])
        assert refused.value.code == "FLOW_LOG_FAILED"
    disk.syncs = True
    with pytest.raises(StateError, match="takes no more ticks"):
        log.append({"of": 2}, [rows(2)])
    assert read(tmp_path) == expected(1, 1)


def test_a_disk_that_forgot_what_it_could_not_write_is_not_believed_later(tmp_path: Path) -> None:
    disk = FullDisk(-1)
    log = RecordLog(tmp_path, files=disk)
    list(log.records(1))
    log.append({"at": 1}, [rows(1)], sync=False)
    for syncs in (False, True):
        disk.syncs = syncs
        with pytest.raises(StateError) as refused:
            log.sync()
        assert refused.value.code == "FLOW_LOG_FAILED"


@pytest.mark.parametrize("remains", [0.0, 0.3, 1.0])
def test_what_was_appended_is_there_whenever_the_power_fails(remains: float, tmp_path: Path) -> None:
    for calls in range(1, 100):
        folder = tmp_path / str(calls)
        log = RecordLog(folder, files=(disk := DyingDisk(calls, remains)))
        appended = 0
        try:
            for _ in log.records(1):
                raise AssertionError("a new log has no records")
            for number in range(1, 7):
                log.append({"of": number}, [rows(number), rows(0)][: number % 3])
                appended = number
                if number % 3 == 0:
                    log.rotate()
        except PowerCut:
            pass
        found = read(folder)
        assert found in (expected(1, appended), expected(1, appended + 1)), calls
        if not disk.dead:
            return
    raise AssertionError("the log makes more calls than that")
