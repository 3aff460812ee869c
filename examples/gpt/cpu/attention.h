// Causal self-attention, head by head and in tiles of queries: a thread holds at most one tile of
// the score matrix, and keys after a tile are never read. Several query heads may share a head of
// keys and values (grouped-query attention).
#pragma once

#include <cstdint>
#include <vector>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/kernels.h"
#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/model/dims.h"

namespace gpt {

// Queries, keys and values of all heads, and the row distances; keys and values share theirs.
template <class P>
struct Qkv {
  P *query, *key, *value;
  std::int64_t query_distance, key_distance;
};

template <class T>
class Attention {
 public:
  using Acc = accumulate_t<T>;

  Attention(const Dims& dims, Matmul& matmul);

  // out [rows, query channels]; backward() needs log_sums [batch, heads, sequence].
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
  // Queries [begin, end) of a head, for keys [0, end).
  struct Tile {
    std::int64_t begin, end;
    std::int64_t rows() const { return end - begin; }
  };
  // Memory of a thread: contiguous matrices of a head, since matrix products run fastest on these.
  struct Scratch {
    Buffer<T> query, key, value, dout;  // [sequence, head channels]
    Buffer<T> result;                   // a tile
    Buffer<Acc> dkey, dvalue;
    Buffer<Acc> scores, gradients;       // [tile, keys]
    Buffer<T> weights, score_gradients;  // rounded copies, used if T is not Acc
  };
  // The start of a head of a sample in row-major and in contiguous memory: first row, first
  // channel, and the index in log_sums.
  struct Head {
    std::int64_t row, channel, log_sums;
  };

  static std::int64_t bytes_of(const Scratch& scratch);
  Scratch make_scratch() const;
  void prepare();
  // A head of keys is an item of work; the query heads that share it are its members.
  std::int64_t items() const { return dims_.batch * dims_.key_heads; }
  std::int64_t members() const { return dims_.heads / dims_.key_heads; }
  Head key_head(std::int64_t item) const;
  Head query_head(std::int64_t item, std::int64_t member) const;
  Tile tile(std::int64_t index) const;
  std::int64_t tiles() const;
  void gather_keys(const Qkv<const T>& qkv, const Head& head, Scratch& scratch) const;
  void gather_queries(const Qkv<const T>& qkv, const Head& head, Scratch& scratch) const;
  // Copy the rows of a head out of rows that hold all heads, and back.
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
