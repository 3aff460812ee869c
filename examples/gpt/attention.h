// Causal self-attention, head by head and in tiles of queries: no more than a tile of the score
// matrix exists per thread, and keys behind a tile are never touched. Several heads of queries may
// share one of keys and values (grouped-query attention).
#pragma once

#include <cstdint>
#include <vector>

#include "examples/gpt/buffer.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/kernels.h"
#include "examples/gpt/matmul.h"

namespace gpt {

// Queries, keys and values of all heads, and the distances of their rows; keys and values have one.
template <class P>
struct Qkv {
  P *query, *key, *value;
  std::int64_t query_distance, key_distance;
};

// Of rows in memory, in elements.
struct RowDistances {
  std::int64_t query, key;
};

template <class T>
class Attention {
 public:
  using Acc = accumulate_t<T>;

  Attention(const Dims& dims, Matmul& matmul);

  // out [rows, query channels]; log_sums [batch, heads, sequence] is what backward() needs.
  void forward(const Qkv<const T>& qkv, T* out, Acc* log_sums);

  struct Backward {
    Qkv<const T> qkv;
    const T* out;
    const T* dout;
    const Acc* log_sums;
    Qkv<T> dqkv;  // overwritten
  };
  void backward(const Backward& tensors);

  std::int64_t bytes() const;

 private:
  // Queries [begin, end) of one head; they see keys [0, end).
  struct Tile {
    std::int64_t begin, end;
    std::int64_t rows() const { return end - begin; }
  };
  // Memory of one thread: one head's matrices side by side in memory, as matrix products like them
  // best.
  struct Scratch {
    Buffer<T> query, key, value, dout;  // [sequence, head channels]
    Buffer<T> result;                   // of a tile
    Buffer<Acc> dkey, dvalue;
    Buffer<Acc> scores, gradients;       // [tile, keys]
    Buffer<T> weights, score_gradients;  // rounded copies, where T is not Acc
  };
  // Where one head of one sample begins, in its row and in memory without gaps: first row, first
  // channel, and the index in log_sums.
  struct Head {
    std::int64_t row, channel, log_sums;
  };

  static std::int64_t bytes_of(const Scratch& scratch);
  Scratch make_scratch() const;
  void prepare();
  // A head of keys is an item of work; the heads of queries that it serves are its members.
  std::int64_t items() const { return dims_.batch * dims_.key_heads; }
  std::int64_t members() const { return dims_.heads / dims_.key_heads; }
  Head key_head(std::int64_t item) const;
  Head query_head(std::int64_t item, std::int64_t member) const;
  Tile tile(std::int64_t index) const;
  std::int64_t tiles() const;
  void gather_keys(const Qkv<const T>& qkv, const Head& head, Scratch& scratch) const;
  void gather_queries(const Qkv<const T>& qkv, const Head& head, Scratch& scratch) const;
  // Rows of one head, out of rows that hold all heads, and back.
  void gather_rows(const T* from, std::int64_t distance, T* to) const;
  void scatter_rows(const T* from, std::int64_t rows, T* to, std::int64_t distance) const;
  void scores(int thread, Tile tile);
  AttentionRow<Acc> row(Scratch& scratch, Tile tile, std::int64_t query) const;
  const T* rounded(Buffer<Acc>& from, Buffer<T>& to, Tile tile) const;
  void forward_tile(int thread, const Head& head, Tile tile, T* out, Acc* log_sums);
  void backward_tile(int thread, const Head& head, Tile tile, const Backward& tensors);
  void backward_item(int thread, std::int64_t item, const Backward& tensors);

  Dims dims_;
  Matmul& matmul_;
  const Kernels<T>& kernels_;
  Acc scale_;
  std::vector<Scratch> scratch_;
};

}  // namespace gpt
