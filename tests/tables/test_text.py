from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from sobgnn.tables.columns import text
from sobgnn.tables.columns.text import TextColumn, choose_analyzer, count_grams, find_vocabulary, right_singular_vectors

TEXTS = pl.Series("t", ["The cat sat. The cat!", "a dog sat", "", "Über_7 die Brücke"])


def test_words_are_counted_in_lower_case():
    vocabulary = find_vocabulary(TEXTS, "words", 1, 1.0)
    assert vocabulary == ("sat", "brücke", "cat", "die", "dog", "the", "über_7")  # frequent first, then by name
    dense = count_grams(TEXTS, "words", vocabulary).toarray()
    assert dense[0].tolist() == [1, 0, 2, 0, 0, 2, 0]
    assert dense[2].sum() == 0


def test_characters_are_counted_with_a_space_before_and_after():
    texts = pl.Series(["abcab", "Äb\n c", "x"])
    vocabulary = find_vocabulary(texts, "characters", 1, 1.0)
    for padded, row in zip(
        [" abcab ", " äb c ", " x "], count_grams(texts, "characters", vocabulary).toarray(), strict=True
    ):
        found = {gram: count for gram, count in zip(vocabulary, row, strict=True) if count}
        assert found == Counter(padded[i : i + n] for n in (3, 4) for i in range(len(padded) - n + 1))


def test_frequent_and_rare_grams_are_left_out():
    texts = pl.Series(["all one", "all two", "all two", "all three"])
    assert find_vocabulary(texts, "words", 2, 0.5) == ("two",)


def test_texts_are_encoded_some_at_a_time_as_all_at_once(monkeypatch):
    column = TextColumn.fit(TEXTS, "words")
    X = column.encode(TEXTS)
    monkeypatch.setattr(text, "_CHUNK_CHARACTERS", 1)
    np.testing.assert_array_equal(column.encode(TEXTS), X)


def test_singular_vectors_are_those_of_the_definition():
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    low = rng.normal(size=(120, 6)) * [9, 7, 5, 4, 3, 2]
    matrix = sp.csr_array((low @ rng.normal(size=(6, 80)) + 0.01 * rng.normal(size=(120, 80))).astype(np.float32))
    vectors, values = right_singular_vectors(matrix, 5, seed=0)
    _, exact_values, exact = np.linalg.svd(matrix.toarray())
    np.testing.assert_allclose(np.abs(np.sum(vectors * exact[:5].T, axis=0)), 1, atol=1e-3)
    np.testing.assert_allclose(values, exact_values[:5], rtol=1e-3)


def test_coordinates_are_those_of_the_definition():
    texts = pl.Series("t", ["red fox", "fox runs", "blue sky", "blue sea", "gray sky"] * 3)
    column = TextColumn.fit(texts, "words")
    counts = count_grams(texts, "words", column.vocabulary).toarray()
    idf = np.log((len(texts) + 1) / (counts > 0).sum(axis=0)) ** 2
    weights = counts * idf  # every word occurs once in a text
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    _, values, vectors = np.linalg.svd(weights, full_matrices=False)
    live = values > 1e-3 * values[0]
    z = weights @ vectors[live].T * (values[live] / values[0]) ** 2
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(column.encode(texts) + column.center), np.abs(z), atol=1e-4)


def test_texts_on_one_topic_are_near_and_blank_ones_far():
    rng = np.random.default_rng(0)
    pools = [["server", "login", "reset", "router", "cable"], ["invoice", "refund", "bank", "tax", "bill"]]
    topic = np.arange(80) % 2
    texts = pl.Series("t", [" ".join(rng.choice(pools[t], 12)) for t in topic] + [None])
    column = TextColumn.fit(texts, "words")
    X = column.encode(texts)
    assert np.isfinite(X).all()
    centers = [X[:80][topic == t].mean(axis=0) for t in (0, 1)]
    near = [np.argmin([np.linalg.norm(x - c) for c in centers]) for x in X[:80]]
    assert near == topic.tolist()
    np.testing.assert_allclose(np.linalg.norm(X + column.center, axis=1), 1, atol=1e-5)


def test_long_text_goes_by_words_and_names_and_unspaced_scripts_by_characters():
    assert choose_analyzer(pl.Series(["the server is down again"] * 3)) == "words"
    assert choose_analyzer(pl.Series(["Anna Berta", "Cäsar"])) == "characters"
    assert choose_analyzer(pl.Series(["服务器已经停止响应请尽快处理机房"])) == "characters"
