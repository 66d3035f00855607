"""Make tickets.csv: 3,000 support tickets of six teams, 150 of them labeled; then `sobgnn fit tickets.csv`.

Texts are newsgroup posts without headers and quotes; channel, date and priority are invented and say nothing.

    python examples/tickets.py [FILE [TICKETS LABELED]]
"""

import csv
import re
import sys
from datetime import datetime, timedelta

import numpy as np

from sobgnn.datasets import locate
from sobgnn.datasets.news import fetch_posts, read_posts, strip_post

TEAMS = {"comp.graphics": "graphics", "rec.autos": "fleet", "sci.crypt": "security", "sci.med": "health",
         "sci.space": "research", "comp.sys.mac.hardware": "hardware"}  # fmt: skip
COLUMNS = ["ticket", "subject", "body", "channel", "opened", "priority", "label"]


def tickets(count=3000, labeled=150, seed=0):
    """Rows of COLUMNS with a blank label where it is hidden; and every row's true label."""
    path, rng = locate("20news").path, np.random.default_rng(seed)
    posts = fetch_posts() if path is None else read_posts(path.read_bytes())
    bodies = {i: strip_post(posts.texts[i])[:2000] for i, y in enumerate(posts.y) if posts.class_names[y] in TEAMS}
    chosen = rng.permutation([i for i, body in bodies.items() if len(body) > 40])[:count]
    truth = [TEAMS[posts.class_names[posts.y[i]]] for i in chosen]
    rows = []
    for number, i in enumerate(chosen):
        subject = re.search(r"^Subject:\s*(?:Re:\s*)*(.*)$", posts.texts[i], re.M).group(1)
        opened = datetime(2024, 1, 1) + timedelta(minutes=int(rng.integers(0, 525_600)))
        invented = [rng.choice(["mail", "phone", "web", "chat"]), opened.strftime("%d.%m.%Y %H:%M"), rng.integers(1, 5)]
        rows.append([f"T-{10_000 + number}", subject, bodies[i], *invented, truth[number] if number < labeled else ""])
    return rows, truth


if __name__ == "__main__":
    path, *counts = sys.argv[1:] or ["tickets.csv"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *tickets(*map(int, counts))[0]])
