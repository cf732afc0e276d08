"""The words of dates in American English, which is the language of Spark's datetime patterns."""

from __future__ import annotations

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

# Of each field, the words by value from `FIRST` on, short and full.
FIRST = {"month": 1, "weekday": 1, "quarter": 1, "ampm": 0, "era": 0}
WORDS: dict[tuple[str, bool], list[str]] = {
    ("month", False): [name[:3] for name in _MONTHS],
    ("month", True): _MONTHS,
    ("weekday", False): [name[:3] for name in _DAYS],
    ("weekday", True): _DAYS,
    ("quarter", False): ["Q1", "Q2", "Q3", "Q4"],
    ("quarter", True): ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"],
    ("ampm", False): ["AM", "PM"],
    ("era", False): ["BC", "AD"],
    ("era", True): ["Before Christ", "Anno Domini"],
}
