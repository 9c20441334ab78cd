// Random feature attention in one step of decoding on a CPU: mapping vectors, reading memories.
//
// What is computed is defined by the plain versions, in random_features.py, linear_attention.py and
// beam_memory.py.  Here every memory is read once, in its own precision, and all sums are in single precision.
// Arrays are contiguous, of the shapes at each parameter: H heads, B sentences, N beams of each,
// F features, D value size; F and D are multiples of LANES.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

// One library serves all processors of a kind: the loader takes the version that fits.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_ALL_PROCESSORS \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_ALL_PROCESSORS
#endif
// Inlined into each of those versions.
#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int LANES = 16;
// Queries that share what is loaded of a memory.
constexpr int BLOCK = 4;
// Rows of a memory that are fetched ahead.
constexpr int AHEAD = 8;

typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef uint32_t Words __attribute__((vector_size(LANES * 4)));
typedef uint16_t HalfWords __attribute__((vector_size(LANES * 2)));

// The upper half of a number in single precision.
struct BFloat16 {
  uint16_t bits;
};

INLINE void load(const float* from, Vector& to) { std::memcpy(&to, from, sizeof to); }

INLINE void load(const BFloat16* from, Vector& to) {
  HalfWords halves;
  std::memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  std::memcpy(&to, &words, sizeof to);
}

INLINE void store(float* to, const Vector& from) { std::memcpy(to, &from, sizeof from); }

// Rounds to the nearest, to even from halfway; NaN stays NaN.
INLINE void store(BFloat16* to, const Vector& from) {
  Words words;
  std::memcpy(&words, &from, sizeof words);
  words = (words + 0x7fff + ((words >> 16) & 1)) >> 16;
  words = from == from ? words : words | 0x7fc0;
  const HalfWords halves = __builtin_convertvector(words, HalfWords);
  std::memcpy(to, &halves, sizeof halves);
}

INLINE float number(const float* from) { return *from; }

INLINE float number(const BFloat16* from) {
  const uint32_t word = uint32_t(from->bits) << 16;
  float result;
  std::memcpy(&result, &word, sizeof result);
  return result;
}

template <class T>
INLINE void widen(const T* from, int64_t size, float* to) {
  Vector v;
  for (int64_t i = 0; i < size; i += LANES) {
    load(from + i, v);
    store(to + i, v);
  }
}

INLINE float total(const Vector& v) {
  float parts[LANES];
  std::memcpy(parts, &v, sizeof v);
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

template <class T, class U>
INLINE float dot(const T* a, const U* b, int64_t size) {
  Vector result = {}, x, y;
  for (int64_t i = 0; i < size; i += LANES) {
    load(a + i, x);
    load(b + i, y);
    result += x * y;
  }
  return total(result);
}

// Memories are larger than the caches; an address behind the end does no harm.
template <class T>
INLINE void prefetch(const T* from, int64_t size) {
  const char* at = reinterpret_cast<const char*>(from);
  for (const char* end = at + size * sizeof(T); at < end; at += 64) __builtin_prefetch(at);
}

// Adds queries (QUERIES, F) times sums (F, D) to outputs (QUERIES, D), for WIDTH * LANES columns.
template <int QUERIES, int WIDTH, class T>
INLINE void add_columns(const float* queries, const T* sums, int64_t F, int64_t D, float* outputs) {
  Vector result[QUERIES][WIDTH] = {}, row[WIDTH];
  for (int64_t f = 0; f < F; ++f) {
    prefetch(sums + (f + AHEAD) * D, WIDTH * LANES);
    for (int w = 0; w < WIDTH; ++w) load(sums + f * D + w * LANES, row[w]);
    for (int q = 0; q < QUERIES; ++q)
      for (int w = 0; w < WIDTH; ++w) result[q][w] += queries[q * F + f] * row[w];
  }
  for (int q = 0; q < QUERIES; ++q)
    for (int w = 0; w < WIDTH; ++w) {
      load(outputs + q * D + w * LANES, row[w]);
      store(outputs + q * D + w * LANES, row[w] + result[q][w]);
    }
}

template <int QUERIES, class T>
INLINE void add_product(const float* queries, const T* sums, int64_t F, int64_t D, float* outputs) {
  constexpr int WIDTH = 4;
  int64_t d = 0;
  for (; d + WIDTH * LANES <= D; d += WIDTH * LANES)
    add_columns<QUERIES, WIDTH>(queries, sums + d, F, D, outputs + d);
  for (; d < D; d += LANES) add_columns<QUERIES, 1>(queries, sums + d, F, D, outputs + d);
}

template <class T>
INLINE void store_ratio(const float* numerator, float denominator, int64_t D, T* output) {
  Vector v;
  for (int64_t d = 0; d < D; d += LANES) {
    load(numerator + d, v);
    store(output + d, v / denominator);
  }
}

// Sine and cosine by the polynomials of Cephes, to 1e-6 for angles up to 10,000.
INLINE void sine_and_cosine(const Vector& angle, Vector& sine, Vector& cosine) {
  typedef int32_t Integers __attribute__((vector_size(LANES * 4)));
  const Vector zero = {}, quarters = angle * 0.636619772f;
  const Vector nearest = quarters + (quarters < zero ? -0.5f : 0.5f);
  const Integers turns = __builtin_convertvector(nearest, Integers);
  const Vector n = __builtin_convertvector(turns, Vector);
  // Less n times half of pi, in three parts.
  const Vector x = ((angle - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f;
  const Vector xx = x * x;
  const Vector s_rest = -1.6666654611e-1f + xx * (8.3321608736e-3f - xx * 1.9515295891e-4f);
  const Vector c_rest = 4.166664568e-2f + xx * (-1.388731625e-3f + xx * 2.443315712e-5f);
  const Vector s = x + x * xx * s_rest, c = 1 - 0.5f * xx + xx * xx * c_rest;
  const Integers odd = (turns & 1) != 0;
  sine = odd ? c : s;
  cosine = odd ? s : c;
  sine = (turns & 2) != 0 ? -sine : sine;
  cosine = ((turns + 1) & 2) != 0 ? -cosine : cosine;
}

// Up to BLOCK rows of one head: vectors (rows, size), ``stride`` apart, matrix (size, D).
template <class T>
FOR_ALL_PROCESSORS void map_rows(const T* vectors, int64_t stride, const T* matrix,
                                 float temperature, float shortest, int64_t rows, int64_t size,
                                 int64_t D, T* features) {
  std::vector<float> scaled(BLOCK * size), projected(BLOCK * D);
  Vector v, sine, cosine;
  for (int64_t r = 0; r < rows; ++r) {
    const T* vector = vectors + r * stride;
    const float length = std::sqrt(dot(vector, vector, size)) + shortest;
    for (int64_t i = 0; i < size; i += LANES) {
      load(vector + i, v);
      store(scaled.data() + r * size + i, v / (length * temperature));
    }
  }
  add_product<BLOCK>(scaled.data(), matrix, size, D, projected.data());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t d = 0; d < D; d += LANES) {
      load(projected.data() + r * D + d, v);
      sine_and_cosine(v, sine, cosine);
      store(features + r * 2 * D + d, sine);
      store(features + (r * 2 + 1) * D + d, cosine);
    }
}

// One head of one sentence: queries (N, F), sums (F, D), norms (F); outputs are ``stride`` apart.
template <class T>
FOR_ALL_PROCESSORS void attend(const T* queries, const T* sums, const T* norms, float floor,
                               int64_t N, int64_t F, int64_t D, T* output, int64_t stride) {
  std::vector<float> block(BLOCK * F), numerators(BLOCK * D);
  for (int64_t first = 0; first < N; first += BLOCK) {
    const int64_t together = std::min<int64_t>(BLOCK, N - first);
    widen(queries + first * F, together * F, block.data());
    std::fill(numerators.begin(), numerators.end(), 0.0f);
    add_product<BLOCK>(block.data(), sums, F, D, numerators.data());
    for (int64_t n = 0; n < together; ++n) {
      const float denominator = std::max(dot(block.data() + n * F, norms, F), floor);
      store_ratio(numerators.data() + n * D, denominator, D, output + (first + n) * stride);
    }
  }
}

// What the beams of a sentence share, and what of it belongs to each of them.
template <class T, class S>
struct Memory {
  const T *sums, *norms;   // (H, B, M, F, D) and (H, B, M, F)
  const S* shares;         // (1 or H, B, N, M)
  const T *keys, *values;  // (H, B, room, F) and (H, B, room, D)
  const S* weights;        // (1 or H, B, N, room)
  int64_t summaries, room, used;
};

// One beam in one head: query (F,), the memory of its sentence with its own shares and weights.
template <class T, class S>
FOR_ALL_PROCESSORS void recall(const T* query, const Memory<T, S>& memory, float floor, int64_t F,
                               int64_t D, T* output) {
  std::vector<float> exact(F), scaled(F), numerator(D);
  float denominator = 0;
  Vector v, sum;
  widen(query, F, exact.data());
  for (int64_t m = 0; m < memory.summaries; ++m) {
    const float share = number(memory.shares + m);
    if (share == 0) continue;
    for (int64_t f = 0; f < F; ++f) scaled[f] = exact[f] * share;
    add_product<1>(scaled.data(), memory.sums + m * F * D, F, D, numerator.data());
    denominator += dot(scaled.data(), memory.norms + m * F, F);
  }
  for (int64_t token = 0; token < memory.used; ++token) {
    const float weight = number(memory.weights + token);
    if (weight == 0) continue;
    const float score = dot(exact.data(), memory.keys + token * F, F) * weight;
    denominator += score;
    for (int64_t d = 0; d < D; d += LANES) {
      load(memory.values + token * D + d, v);
      load(numerator.data() + d, sum);
      store(numerator.data() + d, sum + score * v);
    }
  }
  store_ratio(numerator.data(), std::max(denominator, floor), D, output);
}

template <class T>
void map_all(const T* vectors, const T* matrices, const T* temperatures, float shortest,
             T* features, const int64_t* sizes, int threads) {
  const int64_t H = sizes[0], rows = sizes[1], size = sizes[2], D = sizes[3];
  const int64_t of_head = sizes[4], of_row = sizes[5];
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t h = 0; h < H; ++h)
    for (int64_t first = 0; first < rows; first += BLOCK)
      map_rows(vectors + h * of_head + first * of_row, of_row, matrices + h * size * D,
               number(temperatures + h), shortest, std::min<int64_t>(BLOCK, rows - first), size, D,
               features + (h * rows + first) * 2 * D);
}

template <class T>
void attend_all(const T* queries, const T* sums, const T* norms, float floor, T* output,
                const int64_t* sizes, int threads) {
  const int64_t H = sizes[0], B = sizes[1], N = sizes[2], F = sizes[3], D = sizes[4];
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t h = 0; h < H; ++h)
    for (int64_t b = 0; b < B; ++b) {
      const int64_t at = h * B + b;
      attend(queries + at * N * F, sums + at * F * D, norms + at * F, floor, N, F, D,
             output + (b * N * H + h) * D, H * D);
    }
}

template <class T, class S>
void recall_all(const T* queries, const Memory<T, S>& all, int shared_by_heads, float floor,
                T* output, const int64_t* sizes, int threads) {
  const int64_t H = sizes[0], B = sizes[1], N = sizes[2], F = sizes[3], D = sizes[4];
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t h = 0; h < H; ++h)
    for (int64_t b = 0; b < B; ++b) {
      const int64_t at = h * B + b, of_weights = shared_by_heads ? b : at;
      Memory<T, S> memory = all;
      memory.sums += at * all.summaries * F * D;
      memory.norms += at * all.summaries * F;
      memory.keys += at * all.room * F;
      memory.values += at * all.room * D;
      prefetch(memory.keys, all.used * F);
      prefetch(memory.values, all.used * D);
      for (int64_t n = 0; n < N; ++n) {
        memory.shares = all.shares + (of_weights * N + n) * all.summaries;
        memory.weights = all.weights + (of_weights * N + n) * all.room;
        recall(queries + (at * N + n) * F, memory, floor, F, D, output + ((b * N + n) * H + h) * D);
      }
    }
}

}  // namespace

// Names end with the types of memories and weights.
extern "C" {

// The loader refuses a library that was compiled from another source.
extern const uint32_t source_checksum = SOURCE_CHECKSUM;

// Vectors (H, rows, size), matrices (H, size, D), temperatures (H,), features (H, rows, 2 D); sizes
// {H, rows, size, D} and how far heads and rows of the vectors are apart.
#define FEATURES(name, T)                                                              \
  void features_##name(const T* vectors, const T* matrices, const T* temperatures,     \
                       float shortest, T* features, const int64_t* sizes, int threads) { \
    map_all(vectors, matrices, temperatures, shortest, features, sizes, threads);      \
  }

// Queries (H, B, N, F), sums (H, B, F, D), norms (H, B, F), output (B, N, H, D), sizes
// {H, B, N, F, D}.
#define ATTEND(name, T)                                                                       \
  void attend_##name(const T* queries, const T* sums, const T* norms, float floor, T* output, \
                     const int64_t* sizes, int threads) {                                     \
    attend_all(queries, sums, norms, floor, output, sizes, threads);                          \
  }

// A memory as above, places {M, room, used, whether heads share weights}; the rest as before.
#define RECALL(name, T, S)                                                                      \
  void recall_##name(const T* queries, const T* sums, const T* norms, const S* shares,          \
                     const T* keys, const T* values, const S* weights, const int64_t* places,   \
                     float floor, T* output, const int64_t* sizes, int threads) {               \
    const Memory<T, S> all = {sums,   norms,   shares,    keys,     values,                     \
                              weights, places[0], places[1], places[2]};                        \
    recall_all(queries, all, int(places[3]), floor, output, sizes, threads);                    \
  }

FEATURES(float32, float)
FEATURES(bfloat16, BFloat16)
ATTEND(float32, float)
ATTEND(bfloat16, BFloat16)
RECALL(float32_float32, float, float)
RECALL(bfloat16_bfloat16, BFloat16, BFloat16)
RECALL(bfloat16_float32, BFloat16, float)
}
