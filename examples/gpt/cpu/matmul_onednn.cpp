// Products by oneDNN, 2.6 or 3. Primitives are made once per shape, and share a scratch buffer of
// this thread.
#include <oneapi/dnnl/dnnl_debug.h>
#include <algorithm>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/gemm.h"

namespace gpt {
namespace {

using dnnl::memory;
using zero::DType;

// Rows of C per copied panel of a transposed A.
constexpr std::int64_t panel_rows = 1024;

memory::data_type data_type(DType dtype) {
  if (dtype == DType::fp16) return memory::data_type::f16;
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix(std::int64_t rows, std::int64_t columns, memory::dims strides, DType dtype) {
  return {{rows, columns}, data_type(dtype), std::move(strides)};
}

// Returns an empty descriptor if this oneDNN has no such product. Version 3 dropped the operation
// descriptors that version 2 needs. This is a template, since only templates do not compile the
// branch not taken.
template <class Product>
typename Product::primitive_desc describe(const memory::desc& a, const memory::desc& b,
                                          const std::optional<memory::desc>& bias,
                                          const memory::desc& c,
                                          const dnnl::primitive_attr& attributes,
                                          const dnnl::engine& engine) {
  if constexpr (requires { typename Product::desc; }) {
    const auto operation =
        bias ? typename Product::desc(a, b, *bias, c) : typename Product::desc(a, b, c);
    return {operation, attributes, engine, true};
  } else {
    if (bias) return {engine, a, b, *bias, c, attributes, true};
    return {engine, a, b, c, attributes, true};
  }
}

bool is_reference(const dnnl::matmul::primitive_desc& found) {
  return std::strncmp(found.impl_info_str(), "ref", 3) == 0;
}

struct Key {
  ProductShape shape;
  DType in, out;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const ProductShape& s = key.shape;
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::int64_t part :
         {s.m, s.n, s.k, s.lda, s.ldb, s.ldc,
          std::int64_t{s.transpose_a} | s.transpose_b << 1 | s.bias << 2 | s.accumulate << 3 |
              static_cast<int>(key.in) << 4 | static_cast<int>(key.out) << 8})
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
  }
};

struct Entry {
  bool available = false;
  dnnl::matmul primitive;
  memory a, b, c, bias;
  memory::desc scratch;
};

}  // namespace

struct Gemm::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Key, Entry, KeyHash> entries;
  Buffer<std::byte> scratch, panel;

  // A transposed A with gaps (columns of a larger matrix) is copied, a panel of C's rows at a time.
  static bool in_panels(const ProductShape& shape) {
    return shape.transpose_a && shape.lda != shape.m;
  }

  static ProductShape panel_shape(ProductShape shape, std::int64_t rows) {
    shape.m = shape.lda = rows;
    return shape;
  }

  Entry make(const Key& key) const {
    const ProductShape& s = key.shape;
    const auto a =
        matrix(s.m, s.k, s.transpose_a ? memory::dims{1, s.lda} : memory::dims{s.lda, 1}, key.in);
    const auto b =
        matrix(s.k, s.n, s.transpose_b ? memory::dims{1, s.ldb} : memory::dims{s.ldb, 1}, key.in);
    const auto c = matrix(s.m, s.n, {s.ldc, 1}, key.out);
    std::optional<memory::desc> bias;
    if (s.bias) bias = matrix(1, s.n, {s.n, 1}, key.in);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops add;
      add.append_sum(1.0f);
      attributes.set_post_ops(add);
    }
    Entry entry;
    const auto found = describe<dnnl::matmul>(a, b, bias, c, attributes, engine);
    // Falls back to converted operands, which are far faster than newer versions' reference loops
    // for fp16.
    if (!found || (key.in == DType::fp16 && is_reference(found))) return entry;
    entry.primitive = dnnl::matmul(found);
    entry.a = memory(a, engine, nullptr);
    entry.b = memory(b, engine, nullptr);
    entry.c = memory(c, engine, nullptr);
    if (bias) entry.bias = memory(*bias, engine, nullptr);
    entry.scratch = found.scratchpad_desc();
    entry.available = true;
    return entry;
  }

  Entry& entry(const Key& key) {
    const auto at = entries.find(key);
    if (at != entries.end()) return at->second;
    Entry& made = entries.emplace(key, make(key)).first->second;
    const auto bytes = static_cast<std::int64_t>(made.available ? made.scratch.get_size() : 0);
    if (bytes > scratch.size()) scratch = Buffer<std::byte>(bytes);
    return made;
  }

  void run(const GemmCall& call, DType in, DType out) {
    Entry& at = entry({call.shape, in, out});
    at.a.set_data_handle(const_cast<void*>(call.a));
    at.b.set_data_handle(const_cast<void*>(call.b));
    at.c.set_data_handle(call.c);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, at.a},
        {DNNL_ARG_WEIGHTS, at.b},
        {DNNL_ARG_DST, at.c},
        {DNNL_ARG_SCRATCHPAD, memory(at.scratch, engine, scratch.data())}};
    if (call.shape.bias) {
      at.bias.set_data_handle(const_cast<void*>(call.bias));
      arguments.emplace(DNNL_ARG_BIAS, at.bias);
    }
    at.primitive.execute(stream, arguments);
    stream.wait();
  }

  void run_in_panels(const GemmCall& call, DType in, DType out) {
    const ProductShape& s = call.shape;
    const std::int64_t size = zero::size_of(in);
    for (std::int64_t first = 0; first < s.m; first += panel_rows) {
      const std::int64_t rows = std::min(panel_rows, s.m - first);
      for (std::int64_t k = 0; k < s.k; ++k)
        std::memcpy(panel.data() + k * rows * size,
                    static_cast<const std::byte*>(call.a) + (k * s.lda + first) * size,
                    static_cast<std::size_t>(rows * size));
      void* c = static_cast<std::byte*>(call.c) + first * s.ldc * zero::size_of(out);
      run({panel_shape(s, rows), panel.data(), call.b, c, call.bias}, in, out);
    }
  }
};

Gemm::Gemm() : impl_(std::make_unique<Impl>()) {}
Gemm::~Gemm() = default;

const char* Gemm::name() {
  return "oneDNN";
}

std::string Gemm::version() {
  const dnnl_version_t* version = dnnl::version();
  const auto isa = static_cast<dnnl_cpu_isa_t>(dnnl::get_effective_cpu_isa());
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " for " + dnnl_cpu_isa2str(isa);
}

// oneDNN's kernels for AMX (bf16) accept no gaps between rows; those that do take 1.7 times as
// long.
std::int64_t Gemm::row_distance(std::int64_t columns, DType dtype) {
  constexpr auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  const bool has_amx = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
  return has_amx && dtype == DType::bf16 ? columns : at_cache_lines(columns);
}

bool Gemm::prepare(const ProductShape& shape, DType in, DType out) {
  if (!Impl::in_panels(shape)) return impl_->entry({shape, in, out}).available;
  const std::int64_t bytes = std::min(shape.m, panel_rows) * shape.k * zero::size_of(in);
  if (bytes > impl_->panel.size()) impl_->panel = Buffer<std::byte>(bytes);
  bool available = true;
  for (const std::int64_t rows : {std::min(shape.m, panel_rows), shape.m % panel_rows})
    if (rows > 0)
      available = available && impl_->entry({Impl::panel_shape(shape, rows), in, out}).available;
  return available;
}

void Gemm::run(const GemmCall& call, DType in, DType out) {
  if (Impl::in_panels(call.shape))
    impl_->run_in_panels(call, in, out);
  else
    impl_->run(call, in, out);
}

std::int64_t Gemm::scratch_bytes() const {
  return impl_->scratch.size();
}

}  // namespace gpt
