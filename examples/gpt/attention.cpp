#include "examples/gpt/attention.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace gpt {
namespace {

constexpr std::int64_t tile_rows = 128;

// The products of a tile: `seen` keys, heads of width d, all operands without gaps.
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
      scale_(static_cast<Acc>(1 / std::sqrt(static_cast<double>(dims.head_channels())))) {
  for (int i = 0; i < matmul.pool().threads(); ++i) scratch_.push_back(make_scratch());
  prepare();
}

template <class T>
typename Attention<T>::Scratch Attention<T>::make_scratch() const {
  const std::int64_t of_head = dims_.sequence * dims_.head_channels();
  const std::int64_t of_tile = std::min(tile_rows, dims_.sequence) * dims_.sequence;
  Scratch s;
  for (Buffer<T>* buffer : {&s.query, &s.key, &s.value, &s.dout}) *buffer = Buffer<T>(of_head);
  for (Buffer<Acc>* buffer : {&s.dkey, &s.dvalue}) *buffer = Buffer<Acc>(of_head);
  for (Buffer<Acc>* buffer : {&s.scores, &s.gradients}) *buffer = Buffer<Acc>(of_tile);
  s.result = Buffer<T>(std::min(tile_rows, dims_.sequence) * dims_.head_channels());
  if constexpr (!std::is_same_v<T, Acc>)
    for (Buffer<T>* buffer : {&s.weights, &s.score_gradients}) *buffer = Buffer<T>(of_tile);
  return s;
}

template <class T>
void Attention<T>::prepare() {
  for (std::int64_t i = 0; i < tiles(); ++i) {
    const TileProducts products{tile(i).rows(), tile(i).end, dims_.head_channels()};
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
typename Attention<T>::Head Attention<T>::head(std::int64_t item) const {
  const std::int64_t row = item / dims_.heads * dims_.sequence;
  const std::int64_t column = item % dims_.heads * dims_.head_channels();
  return {row * dims_.channels + column, row * 3 * dims_.channels + column, item * dims_.sequence};
}

template <class T>
void Attention<T>::gather_rows(const T* from, std::int64_t distance, T* to) const {
  const std::int64_t d = dims_.head_channels();
  for (std::int64_t t = 0; t < dims_.sequence; ++t) std::copy_n(from + t * distance, d, to + t * d);
}

template <class T>
void Attention<T>::scatter_rows(const T* from, std::int64_t rows, T* to,
                                std::int64_t distance) const {
  const std::int64_t d = dims_.head_channels();
  for (std::int64_t t = 0; t < rows; ++t) std::copy_n(from + t * d, d, to + t * distance);
}

template <class T>
void Attention<T>::gather(const T* qkv, const Head& head, Scratch& scratch) const {
  const std::int64_t c = dims_.channels;
  gather_rows(qkv + head.qkv, 3 * c, scratch.query.data());
  gather_rows(qkv + head.qkv + c, 3 * c, scratch.key.data());
  gather_rows(qkv + head.qkv + 2 * c, 3 * c, scratch.value.data());
}

template <class T>
void Attention<T>::scores(int thread, Tile tile) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t d = dims_.head_channels();
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
  const TileProducts products{tile.rows(), tile.end, dims_.head_channels()};
  matmul_.run_local<T, T>(thread, {products.weighted(), rounded(s.scores, s.weights, tile),
                                   s.value.data(), s.result.data()});
  scatter_rows(s.result.data(), tile.rows(), out + head.out + tile.begin * dims_.channels,
               dims_.channels);
}

template <class T>
void Attention<T>::forward(const T* qkv, T* out, Acc* log_sums) {
  zero::ThreadPool& pool = matmul_.pool();
  pool.run([&](int thread) {
    const Range items = part_of(dims_.batch * dims_.heads, 1, pool.threads(), thread);
    for (std::int64_t item = items.begin; item < items.end; ++item) {
      gather(qkv, head(item), scratch_[static_cast<std::size_t>(thread)]);
      for (std::int64_t i = 0; i < tiles(); ++i)
        forward_tile(thread, head(item), tile(i), out, log_sums);
    }
  });
}

// With weights P, dP = dO V^T and delta = dO . O:  dS = P (dP - delta) scale.
template <class T>
void Attention<T>::backward_tile(int thread, const Head& head, Tile tile, const Backward& b) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t c = dims_.channels, d = dims_.head_channels();
  const TileProducts products{tile.rows(), tile.end, d};
  const T* dout = s.dout.data() + tile.begin * d;
  scores(thread, tile);
  matmul_.run_local<T, Acc>(thread, {products.scores(), dout, s.value.data(), s.gradients.data()});
  for (std::int64_t q = tile.begin; q < tile.end; ++q) {
    const std::int64_t r = q - tile.begin;
    const Acc delta = kernels_.dot(dout + r * d, b.out + head.out + q * c, d);
    kernels_.softmax_again(row(s, tile, q), b.log_sums[head.log_sums + q]);
    kernels_.softmax_backward(row(s, tile, q), s.gradients.data() + r * tile.end, delta);
  }
  const T* weights = rounded(s.scores, s.weights, tile);
  const T* dscores = rounded(s.gradients, s.score_gradients, tile);
  const T* query = s.query.data() + tile.begin * d;
  matmul_.run_local<T, Acc>(thread, {products.transposed(), weights, dout, s.dvalue.data()});
  matmul_.run_local<T, Acc>(thread, {products.transposed(), dscores, query, s.dkey.data()});
  matmul_.run_local<T, T>(thread, {products.weighted(), dscores, s.key.data(), s.result.data()});
  scatter_rows(s.result.data(), tile.rows(), b.dqkv + head.qkv + tile.begin * 3 * c, 3 * c);
}

template <class T>
void Attention<T>::backward_head(int thread, const Head& head, const Backward& b) {
  Scratch& s = scratch_[static_cast<std::size_t>(thread)];
  const std::int64_t c = dims_.channels, d = dims_.head_channels();
  gather(b.qkv, head, s);
  gather_rows(b.dout + head.out, c, s.dout.data());
  std::fill_n(s.dkey.data(), s.dkey.size(), Acc{0});
  std::fill_n(s.dvalue.data(), s.dvalue.size(), Acc{0});
  for (std::int64_t i = 0; i < tiles(); ++i) backward_tile(thread, head, tile(i), b);
  for (std::int64_t t = 0; t < dims_.sequence; ++t) {
    T* to = b.dqkv + head.qkv + t * 3 * c;
    kernels_.narrow(s.dkey.data() + t * d, to + c, d);
    kernels_.narrow(s.dvalue.data() + t * d, to + 2 * c, d);
  }
}

template <class T>
void Attention<T>::backward(const Backward& tensors) {
  zero::ThreadPool& pool = matmul_.pool();
  pool.run([&](int thread) {
    const Range items = part_of(dims_.batch * dims_.heads, 1, pool.threads(), thread);
    for (std::int64_t item = items.begin; item < items.end; ++item)
      backward_head(thread, head(item), tensors);
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
