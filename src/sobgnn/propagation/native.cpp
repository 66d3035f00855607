// All orders of a stencil in one pass over its rows, for CPUs. Plain C interface at the end, OpenMP inside.
//
//   acc[a] = sum over the row's entries (j, w) of (w q_i q_j)^a t_in[j,a] x[j]      a = 1 .. alpha
//   out[i,a] = t_out[i,a] acc[a]        or, where the output has no orders,        out[i] = sum_a t_out[i,a] acc[a]
//
// x[j] is one row for all orders (expand) or one row per order (reduce, each). For every row
//   1. the coefficients of its entries go to a small buffer, while the rows of x are called into the cache;
//   2. each block of columns is summed over the entries with all accumulators in registers.
// A row is summed by one thread in the order of its entries, so the number of threads does not change a bit.
// Sums run over at most `chunk` entries before they join the total: hubs lose no accuracy to their length.
//
// The file includes itself once for each instruction set, because a target attribute must be spelled at each
// function. `propagate` is what a pass defines.

#ifndef SOBGNN_PASS

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ALWAYS __attribute__((always_inline))

namespace {

constexpr int chunk = 256;     // entries whose coefficients fit the first-level cache beside their rows
constexpr int group = 6;       // orders that are summed at once
constexpr int line = 64;       // bytes

template <class T> struct Problem {
  int64_t rows, inputs, alpha, width;
  bool orders_in, orders_out;
  const int64_t *indptr;
  const void *indices;
  bool wide;  // int64 indices
  const float *weight;
  const T *scale_out, *scale_in;
  T epsilon;
  const T *x;
  T *out;
};

// Denormals are slow and worth nothing here: products flush to zero in a worker, and its mode comes back after.
struct FlushDenormals {
#if defined(__x86_64__)
  unsigned saved = _mm_getcsr();
  FlushDenormals() { _mm_setcsr(saved | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved); }
#elif defined(__aarch64__)
  uint64_t saved;
  FlushDenormals() {
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved));
    __asm__ __volatile__("msr fpcr, %0" : : "r"(saved | (1ull << 24)));
  }
  ~FlushDenormals() { __asm__ __volatile__("msr fpcr, %0" : : "r"(saved)); }
#endif
};

template <class T, int N> struct Vector {
  typedef T type __attribute__((vector_size(N * sizeof(T)), aligned(sizeof(T)), may_alias));
};

// Which rows of x are called into the cache: those of the entry `entries` further on, up to entry `last`.
struct Ahead {
  int64_t entries, last, offset, bytes;
};

}  // namespace

#define SOBGNN_PASS

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")))
#define BYTES 64
#define REGISTERS 24  // vectors that accumulators may take, of 32
namespace avx512 {
#include "native.cpp"
}
#undef TARGET
#undef BYTES
#undef REGISTERS

#define TARGET __attribute__((target("avx2,fma")))
#define BYTES 32
#define REGISTERS 12  // of 16
namespace avx2 {
#include "native.cpp"
}
#undef TARGET
#undef BYTES
#undef REGISTERS
#endif

#define TARGET
#define BYTES 16
#define REGISTERS 12
namespace plain {
#include "native.cpp"
}

namespace {

// The first row of part `part` of `parts`, which share entries and rows evenly. A row counts as eight entries,
// about what writing its output costs.
int64_t first_row(const int64_t *indptr, int64_t rows, int part, int parts) {
  const auto cost = [&](int64_t row) { return indptr[row] - indptr[0] + 8 * row; };
  const int64_t goal = cost(rows) / parts * part + cost(rows) % parts * part / parts;
  int64_t low = 0, high = rows;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (cost(middle) < goal)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class T> using Rows = void (*)(const Problem<T> &, int64_t, int64_t);

// level: 3 the best there is, 2 at most AVX2, 1 plain.
template <class T> Rows<T> kernel(int level) {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  __builtin_cpu_init();
  if (level >= 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
    return avx512::propagate<T>;
  if (level >= 2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::propagate<T>;
#endif
  (void)level;
  return plain::propagate<T>;
}

// A result above glibc's largest threshold is a fresh mapping each time, and its page faults cost as much as the
// sums: ask for huge pages.
void advise(void *memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (bytes < (int64_t(32) << 20)) return;
  const uintptr_t page = 4096, begin = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / page * page;
  madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

template <class T> void run(Problem<T> problem, int threads, int level) {
  // A row narrower than a vector is read as a whole vector, into the next row: give the last one something to read.
  std::vector<T> padded;
  if (problem.width < int64_t(line / sizeof(T))) {
    const int64_t size = problem.inputs * problem.width * (problem.orders_in ? problem.alpha : 1);
    padded.assign(size + line / sizeof(T), T(0));
    std::copy(problem.x, problem.x + size, padded.begin());
    problem.x = padded.data();
  }
  const Rows<T> rows = kernel<T>(level);
  advise(problem.out, problem.rows * problem.width * (problem.orders_out ? problem.alpha : 1) * int64_t(sizeof(T)));
#ifdef _OPENMP
  // More parts than threads, taken as they come: a thread that is held up does not hold up the others.
  const int parts = threads > 1 ? int(std::min<int64_t>(16 * threads, problem.rows)) : 1;
#pragma omp parallel num_threads(threads) if (parts > 1)
  {
    FlushDenormals flush;
#pragma omp for schedule(dynamic, 1)
    for (int part = 0; part < parts; ++part)
      rows(problem, first_row(problem.indptr, problem.rows, part, parts),
           first_row(problem.indptr, problem.rows, part + 1, parts));
  }
#else
  FlushDenormals flush;
  rows(problem, 0, problem.rows);
  (void)threads;
#endif
}

}  // namespace

#define DEFINE(NAME, T)                                                                                             \
  extern "C" __attribute__((visibility("default"))) void NAME(                                                      \
      int orders_in, int orders_out, int64_t rows, int64_t inputs, int64_t alpha, int64_t width, const int64_t *indptr,             \
      const void *indices, int wide, const float *weight, const T *scale_out, const T *scale_in, double epsilon,    \
      const T *x, T *out, int threads, int level) {                                                                 \
    run<T>({rows, inputs, alpha, width, orders_in != 0, orders_out != 0, indptr, indices, wide != 0, weight, scale_out,     \
            scale_in, T(epsilon), x, out},                                                                          \
           threads, level);                                                                                         \
  }

DEFINE(sobgnn_propagate_f32, float)
DEFINE(sobgnn_propagate_f64, double)

#else  // SOBGNN_PASS: once for each instruction set, inside its namespace

namespace {

// Step 1 for the entries [begin, end) of a row; the entry at `last`, after the row's own, is the diagonal's.
// coefficient[e][a] = (w q_i q_j)^(first + a) t_in[j, first + a], position[e] = where x[j] starts.
template <class T, class I, int A>
TARGET __attribute__((noinline)) void coefficients(const Problem<T> &p, int64_t row, int64_t begin, int64_t end,
                                                   int64_t last, int64_t first, int64_t stride, const Ahead &ahead,
                                                   T (*coefficient)[A], int64_t *position) {
  const I *const indices = static_cast<const I *>(p.indices);
  const int64_t columns = p.alpha + 1;
  const T q = p.scale_out[row * columns];
  const auto entry = [&](int64_t e, int64_t j, T weight) TARGET ALWAYS {
    const T *const scale = p.scale_in + j * columns;
    const T base = weight * (q * scale[0]);
    T power = base;
    for (int64_t a = 1; a < first; ++a) power *= base;
#pragma GCC unroll 8
    for (int a = 0; a < A; ++a) {
      coefficient[e][a] = power * scale[first + a];
      power *= base;
    }
    position[e] = j * stride;
  };
  const int64_t stop = std::min(end, last);
  for (int64_t e = begin; e < stop; ++e) {
    // The rows that a coming entry reads, called early, past the end of this row: entries lie one after another.
    const int64_t next = static_cast<int64_t>(indices[std::min(e + ahead.entries, ahead.last)]);
    __builtin_prefetch(p.scale_in + next * columns);
    const char *const source = reinterpret_cast<const char *>(p.x + next * stride + ahead.offset);
    for (int64_t byte = 0; byte < ahead.bytes; byte += line) __builtin_prefetch(source + byte);
    entry(e - begin, static_cast<int64_t>(indices[e]), T(p.weight[e]));
  }
  if (end > last) entry(last - begin, row, p.epsilon);
}

// Step 2: A orders of V vectors of W columns from x on, over `count` entries, added to `total`.
template <class T, int A, int V, int W, bool IN>
TARGET ALWAYS inline void sums(const T *x, int64_t step, int64_t count, const T (*coefficient)[A], const int64_t *position,
                        typename Vector<T, W>::type (&total)[A][V]) {
  using vector = typename Vector<T, W>::type;
  constexpr int U = A * V <= 2 ? 4 : A * V <= 4 ? 2 : 1;  // entries at once: short chains hide the latency
  vector acc[U][A][V] = {};
  const auto entry = [&](int64_t e, vector(&sum)[A][V]) TARGET ALWAYS {
    const T *const source = x + position[e];
    if constexpr (IN) {
#pragma GCC unroll 8
      for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v)
          sum[a][v] += coefficient[e][a] * *reinterpret_cast<const vector *>(source + a * step + v * W);
    } else {
      vector values[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) values[v] = *reinterpret_cast<const vector *>(source + v * W);
#pragma GCC unroll 8
      for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[a][v] += coefficient[e][a] * values[v];
    }
  };
  int64_t e = 0;
  for (; e + U <= count; e += U)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) entry(e + u, acc[u]);
  for (; e < count; ++e) entry(e, acc[0]);
#pragma GCC unroll 8
  for (int a = 0; a < A; ++a)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      vector sum = acc[0][a][v];
      for (int u = 1; u < U; ++u) sum += acc[u][a][v];
      total[a][v] += sum;
    }
}

// The orders first .. first + A - 1 of the rows [begin, end). Where the output has no orders, later groups of
// orders add to what earlier ones wrote.
template <class T, int A, bool IN, bool OUT>
TARGET void orders(const Problem<T> &p, int64_t begin, int64_t end, int64_t first) {
  constexpr int W = BYTES / sizeof(T);
  constexpr int V = 8 * A <= REGISTERS ? 8 : 4 * A <= REGISTERS ? 4 : 2 * A <= REGISTERS ? 2 : 1;
  using vector = typename Vector<T, W>::type;
  const int64_t columns = p.alpha + 1, width = p.width;
  const int64_t stride = IN ? p.alpha * width : width;
  const bool loop = p.epsilon != T(0), add = !OUT && first > 1;
  const auto fill = p.wide ? coefficients<T, int64_t, A> : coefficients<T, int32_t, A>;
  const T *const x = p.x + (IN ? (first - 1) * width : 0);
  // A wide row is called as far as its first block goes, the rest is left to the hardware.
  Ahead ahead;
  ahead.offset = IN ? (first - 1) * width : 0;
  ahead.bytes = std::min<int64_t>((IN ? A : 1) * width * int64_t(sizeof(T)), 1024);
  ahead.entries = std::max<int64_t>(8, std::min<int64_t>(64, 8192 / std::max<int64_t>(1, ahead.bytes)));
  ahead.last = p.indptr[p.rows] - 1;
  alignas(line) T coefficient[chunk][A];
  int64_t position[chunk];

  for (int64_t row = begin; row < end; ++row) {
    const int64_t start = p.indptr[row], last = p.indptr[row + 1], stop = last + loop;
    const bool once = stop - start <= chunk;
    if (once) fill(p, row, start, stop, last, first, stride, ahead, coefficient, position);
    const T *const scale = p.scale_out + row * columns + first;
    T *const out = p.out + row * (OUT ? p.alpha * width : width) + (OUT ? (first - 1) * width : 0);

    // `count` vectors of columns, of which the lanes [low, high) are written.
    const auto block = [&](auto vectors, int64_t column, int low, int high) TARGET ALWAYS {
      constexpr int count = decltype(vectors)::value;
      vector total[A][count] = {};
      for (int64_t from = start; from < stop; from += chunk) {
        const int64_t to = std::min<int64_t>(from + chunk, stop);
        if (!once) fill(p, row, from, to, last, first, stride, ahead, coefficient, position);
        sums<T, A, count, W, IN>(x + column, width, to - from, coefficient, position, total);
      }
      const auto store = [&](T *target, vector value) TARGET ALWAYS {
        if (low == 0 && high == W) {
          vector *const whole = reinterpret_cast<vector *>(target);
          *whole = add ? *whole + value : value;
        } else {
          T lanes[W];
          *reinterpret_cast<vector *>(lanes) = value;
          for (int lane = low; lane < high; ++lane) target[lane] = add ? target[lane] + lanes[lane] : lanes[lane];
        }
      };
#pragma GCC unroll 8
      for (int v = 0; v < count; ++v) {
        if constexpr (OUT) {
#pragma GCC unroll 8
          for (int a = 0; a < A; ++a) store(out + a * width + column + v * W, scale[a] * total[a][v]);
        } else {
          vector sum = scale[0] * total[0][v];
#pragma GCC unroll 8
          for (int a = 1; a < A; ++a) sum += scale[a] * total[a][v];
          store(out + column + v * W, sum);
        }
      }
    };
    int64_t column = 0;
    for (; column + V * W <= width; column += V * W) block(std::integral_constant<int, V>(), column, 0, W);
    if constexpr (V > 4)
      if (column + 4 * W <= width) block(std::integral_constant<int, 4>(), column, 0, W), column += 4 * W;
    if constexpr (V > 2)
      if (column + 2 * W <= width) block(std::integral_constant<int, 2>(), column, 0, W), column += 2 * W;
    // The rest by single vectors. Where it is no whole vector, take the last W columns again and write the new ones
    // only; or, in a row shorter than W, its first W, beyond which x was padded.
    while (column < width) {
      const int64_t from = std::min(column, std::max<int64_t>(0, width - W));
      block(std::integral_constant<int, 1>(), from, int(column - from), int(std::min<int64_t>(W, width)));
      column = from + W;
    }
  }
}

template <class T, int A> TARGET void shapes(const Problem<T> &p, int64_t begin, int64_t end, int64_t first) {
  if (!p.orders_in)
    orders<T, A, false, true>(p, begin, end, first);
  else if (p.orders_out)
    orders<T, A, true, true>(p, begin, end, first);
  else
    orders<T, A, true, false>(p, begin, end, first);
}

template <class T> TARGET void propagate(const Problem<T> &p, int64_t begin, int64_t end) {
  for (int64_t first = 1; first <= p.alpha; first += group) {
    switch (std::min<int64_t>(group, p.alpha - first + 1)) {
      case 1: shapes<T, 1>(p, begin, end, first); break;
      case 2: shapes<T, 2>(p, begin, end, first); break;
      case 3: shapes<T, 3>(p, begin, end, first); break;
      case 4: shapes<T, 4>(p, begin, end, first); break;
      case 5: shapes<T, 5>(p, begin, end, first); break;
      default: shapes<T, group>(p, begin, end, first);
    }
  }
}

}  // namespace

#endif
