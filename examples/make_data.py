"""Make the data set of the examples again: a year of a small chain of shops, the same rows every time."""

from __future__ import annotations

import csv
import json
import random
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent / "data"
STORES = [
    ("Lisbon", "Portugal"),
    ("Porto", "Portugal"),
    ("Bergen", "Norway"),
    ("Oslo", "Norway"),
    ("Nagoya", "Japan"),
    ("Osaka", "Japan"),
    ("Cusco", "Peru"),
    ("Lima", "Peru"),
    ("Accra", "Ghana"),
]
PRODUCTS = [
    ("espresso", "coffee", "2.40"),
    ("flat white", "coffee", "3.60"),
    ("filter, one litre", "coffee", "6.90"),
    ("green tea", "tea", "2.90"),
    ("rooibos", "tea", "2.70"),
    ("almond cake", "bakery", "3.20"),
    ("cinnamon roll", "bakery", "2.80"),
    ("sourdough", "bakery", "5.50"),
    ("hand grinder", "hardware", "64.00"),
    ("drip kettle", "hardware", "48.50"),
]


def main() -> None:
    """Write stores.csv, products.json and orders.parquet beside this file."""
    dice = random.Random(2026)
    HERE.mkdir(exist_ok=True)
    with (HERE / "stores.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["store_id", "city", "country"])
        writer.writerows([number, *place] for number, place in enumerate(STORES, 1))
    with (HERE / "products.json").open("w") as file:
        for number, (name, category, price) in enumerate(PRODUCTS, 1):
            row = {"product_id": number, "name": name, "category": category, "price": price}
            file.write(json.dumps(row) + "\n")
    orders = [_order(dice, number) for number in range(1, 5_001)]
    schema = pa.schema(
        [
            ("order_id", pa.int64()),
            ("customer_id", pa.int64()),
            ("store_id", pa.int32()),
            ("product_id", pa.int32()),
            ("quantity", pa.int32()),
            ("amount", pa.decimal128(10, 2)),
            ("ordered_at", pa.timestamp("us", tz="UTC")),
        ]
    )
    pq.write_table(pa.Table.from_pylist(orders, schema), HERE / "orders.parquet", compression="zstd")


def _order(dice: random.Random, number: int) -> dict[str, object]:
    product = min(int(dice.expovariate(0.35)), len(PRODUCTS) - 1)
    quantity = dice.choice([1, 1, 1, 2, 2, 3, 4])
    opened = datetime.fromisoformat("2026-01-01T07:00:00+00:00")
    moment = opened + timedelta(days=dice.randrange(300), minutes=dice.randrange(12 * 60))
    return {
        "order_id": number,
        "customer_id": min(int(dice.paretovariate(0.7)), 400),
        "store_id": dice.randint(1, len(STORES)),
        "product_id": product + 1,
        "quantity": quantity,
        "amount": Decimal(PRODUCTS[product][2]) * quantity,
        "ordered_at": moment,
    }


if __name__ == "__main__":
    main()
