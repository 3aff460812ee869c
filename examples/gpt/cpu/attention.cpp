#include "examples/gpt/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace gpt {
namespace {

constexpr std::int64_t tile_rows = 128;

// The products of a tile with `seen` keys and heads of width d; all operands are contiguous.
struct TileProducts {
  std::int64_t rows, seen, d;

  // [rows, seen] = Q K^T, and dP = dO V^T
  ProductShape scores() const {
    return {.m = rows, .n = seen, .k = d, .transpose_b = true, .lda = d, .ldb = d, .ldc = seen};
  }
  // [rows, d] = P V, and dQ = dS K
  ProductShape weighted() const {
    return {.m = rows, .n = d, .k = seen, .lda = seen, .ldb = d, .ldc = d};
  }
  // [seen, d] += P^T dO, and dK += dS^T Q
  ProductShape transposed() const {
    return {.m = seen,
            .n = d,
            .k = rows,
            .transpose_a = true,
            .lda = seen,
            .ldb = d,
            .ldc = d,
            .accumulate = true};
  }
};

}  // namespace

template <class T>
Attention<T>::Attention(const Dims& dims, Matmul& matmul)
    : dims_(dims),
      matmul_(matmul),
      kernels_(kernels<T>()),
      scale_(static_cast<Acc>(1 / std::sqrt(static_cast<double>(dims.head_channels)))) {
  for (int i = 0; i < matmul.pool().threads(); ++i) scratch_.push_back(make_scratch());
  prepare();
}

template <class T>
typename Attention<T>::Scratch Attention<T>::make_scratch() const {
  const std::int64_t of_head = dims_.sequence * dims_.head_channels;
  const std::int64_t of_tile = std::min(tile_rows, dims_.sequence) * dims_.sequence;
  Scratch s;
  for (Buffer<T>* buffer : {&s.query, &s.key, &s.value, &s.dout}) *buffer = Buffer<T>(of_head);
  for (Buffer<Acc>* buffer : {&s.dkey, &s.dvalue}) *buffer = Buffer<Acc>(of_head);
  for (Buffer<Acc>* buffer : {&s.scores, &s.gradients}) *buffer = Buffer<Acc>(of_tile);
  s.result = Buffer<T>(std::min(tile_rows, dims_.sequence) * dims_.head_channels);
  if constexpr (!std::is_same_v<T, Acc>)
    for (Buffer<T>* buffer : {&s.weights, &s.score_gradients}) *buffer = Buffer<T>(of_tile);
  return s;
}

template <class T>
void Attention<T>::prepare() {
  for (std::int64_t i = 0; i < tiles(); ++i) {
    const TileProducts products{tile(i).rows(), tile(i).end, dims_.head_channels};
    matmul_.prepare_local<T, Acc>(products.scores());
    matmul_.prepare_local<T, T>(products.weighted());
    matmul_.prepare_local<T, Acc>(products.transposed());
  }
}

template <class T>
std::int64_t Attention<T>::tiles() const {
  return (dims_.sequence + tile_rows - 1) / tile_rows;
}

template <class T>
typename Attention<T>::Tile Attention<T>::tile(std::int64_t index) const {
  return {index * tile_rows, std::min(dims_.sequence, (index + 1) * tile_rows)};
}

template <class T>
typename Attention<T>::Head Attention<T>::key_head(std::int64_t item) const {
  return {item / dims_.key_heads * dims_.sequence, item % dims_.key_heads * dims_.head_channels, 0};
}

template <class T>
typename Attention<T>::Head Attention<T>::query_head(std::int64_t item, std::int64_t member) const {
  const std::int64_t head = item * members() + member;  // over all samples
  return {item / dims_.key_heads * dims_.sequence, head % dims_.heads * dims_.head_channels,
          head * dims_.sequence};
}

template <class T>
void Attention<T>::gather_rows(const T* from, std::int64_t distance, T* to) const {
  const std::int64_t d = dims_.head_channels;
  for (std::int64_t t = 0; t < dims_.sequence; ++t) std::copy_n(from + t * distance, d, to + t * d);
}

template <class T>
void Attention<T>::scatter_rows(const T* from, std::int64_t rows, T* to,
                                std::int64_t distance) const {
  const std::int64_t d = dims_.head_channels;
  for (std::int64_t t = 0; t < rows; ++t) std::copy_n(from + t * d, d, to + t * distance);
}

template <class T>
void Attention<T>::gather_keys(const Qkv<const T>& qkv, const Head& head, Scratch& scratch) const {
  const std::int64_t begin = head.row * qkv.key_distance + head.channel;
  gather_rows(qkv.key + begin, qkv.key_distance, scratch.key.data());
  gather_rows(qkv.value + begin, qkv.key_distance, scratch.value.data());
}

template <class T>
void Attention<T>::gather_queries(const Qkv<const T>& qkv, const Head& head,
                                  Scratch& scratch) const {
  gather_rows(qkv.query + head.row * qkv.query_distance + head.channel, qkv.query_distance,
              scratch.query.data());
}

template <class T>
void Attention<T>::scores(int thread, Tile tile) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t d = dims_.head_channels;
  const TileProducts products{tile.rows(), tile.end, d};
  matmul_.run_local<T, Acc>(
      thread, {products.scores(), s.query.data() + tile.begin * d, s.key.data(), s.scores.data()});
}

template <class T>
AttentionRow<accumulate_t<T>> Attention<T>::row(Scratch& scratch, Tile tile,
                                                std::int64_t query) const {
  return {scratch.scores.data() + (query - tile.begin) * tile.end, query + 1, tile.end, scale_};
}

template <class T>
const T* Attention<T>::rounded(Buffer<Acc>& from, Buffer<T>& to, Tile tile) const {
  if constexpr (std::is_same_v<T, Acc>) {
    return from.data();
  } else {
    kernels_.narrow(from.data(), to.data(), tile.rows() * tile.end);
    return to.data();
  }
}

template <class T>
void Attention<T>::forward_tile(int thread, const Head& head, Tile tile, T* out, Acc* log_sums) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  scores(thread, tile);
  for (std::int64_t q = tile.begin; q < tile.end; ++q)
    log_sums[head.log_sums + q] = kernels_.softmax(row(s, tile, q));
  const TileProducts products{tile.rows(), tile.end, dims_.head_channels};
  matmul_.run_local<T, T>(thread, {products.weighted(), rounded(s.scores, s.weights, tile),
                                   s.value.data(), s.result.data()});
  const std::int64_t width = dims_.query_channels();
  scatter_rows(s.result.data(), tile.rows(), out + (head.row + tile.begin) * width + head.channel,
               width);
}

template <class T>
void Attention<T>::forward(const Qkv<const T>& qkv, T* out, Acc* log_sums) {
  zero::ThreadPool& pool = matmul_.pool();
  pool.run([&](int thread) {
    Scratch& scratch = scratch_[static_cast<std::size_t>(thread)];
    const Range range = part_of(items(), 1, pool.threads(), thread);
    for (std::int64_t item = range.begin; item < range.end; ++item) {
      gather_keys(qkv, key_head(item), scratch);
      for (std::int64_t member = 0; member < members(); ++member) {
        const Head head = query_head(item, member);
        gather_queries(qkv, head, scratch);
        for (std::int64_t i = 0; i < tiles(); ++i)
          forward_tile(thread, head, tile(i), out, log_sums);
      }
    }
  });
}

// Computes, with weights P, dP = dO V^T and delta = dO . O:  dS = P (dP - delta) scale.
template <class T>
void Attention<T>::backward_tile(int thread, const Head& head, Tile tile, const Backward& b) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t d = dims_.head_channels, width = dims_.query_channels();
  const TileProducts products{tile.rows(), tile.end, d};
  const T* out = b.out + head.row * width + head.channel;
  const T* dout = s.dout.data() + tile.begin * d;
  scores(thread, tile);
  matmul_.run_local<T, Acc>(thread, {products.scores(), dout, s.value.data(), s.gradients.data()});
  for (std::int64_t q = tile.begin; q < tile.end; ++q) {
    const std::int64_t r = q - tile.begin;
    const Acc delta = kernels_.dot(dout + r * d, out + q * width, d);
    kernels_.softmax_again(row(s, tile, q), b.log_sums[head.log_sums + q]);
    kernels_.softmax_backward(row(s, tile, q), s.gradients.data() + r * tile.end, delta);
  }
  const T* weights = rounded(s.scores, s.weights, tile);
  const T* dscores = rounded(s.gradients, s.score_gradients, tile);
  const T* query = s.query.data() + tile.begin * d;
  matmul_.run_local<T, Acc>(thread, {products.transposed(), weights, dout, s.dvalue.data()});
  matmul_.run_local<T, Acc>(thread, {products.transposed(), dscores, query, s.dkey.data()});
  matmul_.run_local<T, T>(thread, {products.weighted(), dscores, s.key.data(), s.result.data()});
  T* dquery = b.dqkv.query + (head.row + tile.begin) * b.dqkv.query_distance + head.channel;
  scatter_rows(s.result.data(), tile.rows(), dquery, b.dqkv.query_distance);
}

// The gradients of keys and values are summed over the queries' heads in fp32, and rounded once.
template <class T>
void Attention<T>::backward_item(int thread, std::int64_t item, const Backward& b) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t d = dims_.head_channels, width = dims_.query_channels();
  const Head keys = key_head(item);
  gather_keys(b.qkv, keys, s);
  std::fill_n(s.dkey.data(), s.dkey.size(), Acc{0});
  std::fill_n(s.dvalue.data(), s.dvalue.size(), Acc{0});
  for (std::int64_t member = 0; member < members(); ++member) {
    const Head head = query_head(item, member);
    gather_queries(b.qkv, head, s);
    gather_rows(b.dout + head.row * width + head.channel, width, s.dout.data());
    for (std::int64_t i = 0; i < tiles(); ++i) backward_tile(thread, head, tile(i), b);
  }
  for (std::int64_t t = 0; t < dims_.sequence; ++t) {
    const std::int64_t to = (keys.row + t) * b.dqkv.key_distance + keys.channel;
    kernels_.narrow(s.dkey.data() + t * d, b.dqkv.key + to, d);
    kernels_.narrow(s.dvalue.data() + t * d, b.dqkv.value + to, d);
  }
}

template <class T>
void Attention<T>::backward(const Backward& tensors) {
  zero::ThreadPool& pool = matmul_.pool();
  pool.run([&](int thread) {
    const Range range = part_of(items(), 1, pool.threads(), thread);
    for (std::int64_t item = range.begin; item < range.end; ++item)
      backward_item(thread, item, tensors);
  });
}

template <class T>
std::int64_t Attention<T>::bytes_of(const Scratch& s) {
  std::size_t bytes = 0;
  for (const Buffer<T>* buffer :
       {&s.query, &s.key, &s.value, &s.dout, &s.result, &s.weights, &s.score_gradients})
    bytes += buffer->bytes();
  for (const Buffer<Acc>* buffer : {&s.dkey, &s.dvalue, &s.scores, &s.gradients})
    bytes += buffer->bytes();
  return static_cast<std::int64_t>(bytes);
}

template <class T>
std::int64_t Attention<T>::bytes() const {
  std::int64_t bytes = 0;
  for (const Scratch& scratch : scratch_) bytes += bytes_of(scratch);
  return bytes;
}

template class Attention<float>;
template class Attention<zero::bf16>;
template class Attention<zero::fp16>;
template class Attention<double>;

}  // namespace gpt
