"""Claim: words without pairs, with the square of ln(N / N_j), make better neighbors than the usual TF-IDF.

Newsgroup posts without headers, signatures and quotes: 3,000 tickets of six groups, and 5,000 posts of all twenty.
Counts are weighted, projected on the first singular vectors and divided by their length. Printed: how many of the 10
nearest neighbors share a post's group, for several numbers of coordinates.

    SOBGNN_DATA=... python -m benchmarks.tables_text
"""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks.tables_scaling import agreement
from sobgnn.datasets import locate
from sobgnn.datasets.news import read_posts, strip_post
from sobgnn.tables.text import right_singular_vectors

COMPONENTS = (32, 64, 128, 200)


def weighted(counts, power):
    held, rows = np.bincount(counts.indices, minlength=counts.shape[1]), counts.shape[0]
    idf = 1 + np.log((1 + rows) / (1 + held)) if power == "usual" else np.log((1 + rows) / held) ** power
    out = counts.copy()
    out.data = (1 + np.log(out.data)) * idf[out.indices]
    length = np.sqrt(np.asarray(out.multiply(out).sum(axis=1)).ravel())
    return sp.csr_array(sp.diags_array(1 / np.maximum(length, 1e-12)) @ out).astype(np.float32)


def main():
    sys.path.insert(0, "examples")
    from tickets import tickets

    rows, truth = tickets()
    posts = read_posts(locate("20news").path.read_bytes())
    chosen = np.random.default_rng(0).permutation(len(posts.texts))[:5000]
    texts = {int(i): strip_post(posts.texts[i])[:3000] for i in chosen}
    kept = [i for i, text in texts.items() if len(text) > 40]
    tables = {
        "tickets": ([row[2] for row in rows], np.unique(truth, return_inverse=True)[1]),
        "20 groups": ([texts[i] for i in kept], posts.y[kept]),
    }
    for name, (bodies, y) in tables.items():
        for longest in (1, 2):
            vectorizer = CountVectorizer(min_df=3, max_df=0.5, ngram_range=(1, longest), dtype=np.float32)
            counts = sp.csr_array(vectorizer.fit_transform(bodies))
            for power in ("usual", 1, 1.5, 2):
                matrix = weighted(counts, power)
                z = matrix @ right_singular_vectors(matrix, max(COMPONENTS), seed=0)[0]
                found = []
                for width in COMPONENTS:
                    part = z[:, :width] / np.maximum(np.linalg.norm(z[:, :width], axis=1, keepdims=True), 1e-12)
                    found.append(agreement(part, y))
                line = "".join(f"  {width}: {value:.3f}" for width, value in zip(COMPONENTS, found, strict=True))
                print(f"{name:10} {'pairs' if longest == 2 else 'words'} idf {power!s:6}{line}", flush=True)


if __name__ == "__main__":
    main()
