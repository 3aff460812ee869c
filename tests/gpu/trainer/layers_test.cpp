// Each kernel of a GPU against the CPU's in fp64 on the same values, at odd shapes: results are as
// near as their rounding to T allows.
#include "examples/gpt/cuda/layers.h"
#include "examples/gpt/cpu/attention.h"
#include "examples/gpt/cuda/attention.h"
#include "examples/gpt/cuda/classifier.h"
#include "examples/gpt/cuda/row_kernels.h"
#include "examples/gpt/cuda/token_order.h"
#include "tests/gpt/plain_model.h"
#include "tests/gpu/trainer/support.h"

namespace {

using namespace gpt;
using gpt::testing::Array;
using gpt::testing::distance;
using gpt::testing::Gpu;
using gpt::testing::rounding;

#define FLOATING float, zero::bf16, zero::fp16

// The same random values as T and as double.
template <class T>
struct Both {
  Both(const std::string& name, std::int64_t count, const Gpu& gpu)
      : exact(static_cast<std::size_t>(count)), device(fill(name, count, exact), gpu.stream()) {}

  T* data() { return device.data(); }
  // Returns the distance of the device's values from the CPU's result for the exact values.
  double off() const { return distance(device.read(), exact); }

  std::vector<double> exact;
  Array<T> device;

 private:
  static std::vector<T> fill(const std::string& name, std::int64_t count,
                             std::vector<double>& exact) {
    const auto values = gpt::testing::random_values<T>(name, count);
    std::transform(values.begin(), values.end(), exact.begin(),
                   [](T value) { return gpt::testing::value_of(value); });
    return values;
  }
};

Dims dims_of(std::int64_t batch, std::int64_t sequence, std::int64_t channels, NormKind norm) {
  Dims dims{.batch = batch, .sequence = sequence, .channels = channels};
  dims.norm = norm;
  return dims;
}

// LayerNorm and RMSNorm, with rows that are aligned to wide accesses and rows that are not.
template <class T>
void check_norm(const Dims& dims) {
  const Gpu gpu;
  zero::ThreadPool pool(1);
  const std::int64_t c = dims.channels, count = dims.rows() * c;
  const bool bias = dims.norm == NormKind::layer;
  Both<T> in("in", count, gpu), weight("ln_1.weight", c, gpu), shift("shift", c, gpu),
      out("out", count, gpu), dout("dout", count, gpu), din("din", count, gpu),
      dweight("dweight", c, gpu), dbias("dbias", c, gpu);
  cuda::DeviceBuffer<float> scratch(cuda::column_scratch(dims.rows(), 2 * c));
  Norm<double> expected(dims, pool);
  cuda::Norm<T> norm(dims, gpu.stream());
  const auto cpu = [&](Both<T>& b) { return bias ? b.exact.data() : nullptr; };
  const auto device = [&](Both<T>& b) { return bias ? b.data() : nullptr; };
  expected.forward(in.exact.data(), {weight.exact.data(), cpu(shift)}, out.exact.data());
  norm.forward(in.data(), {weight.data(), device(shift)}, out.data());
  expected.backward(dout.exact.data(), in.exact.data(), {weight.exact.data(), cpu(shift)},
                    din.exact.data(), {dweight.exact.data(), cpu(dbias)});
  norm.backward(dout.data(), in.data(), {weight.data(), device(shift)}, din.data(),
                {dweight.data(), device(dbias)}, scratch.data());
  CHECK(out.off() < rounding<T>());
  // The two terms of a single channel's gradient cancel, except for epsilon.
  CHECK(din.off() < (c == 1 ? std::max(1e-4, rounding<T>()) : rounding<T>()));
  CHECK(dweight.off() < rounding<T>());
  CHECK(dbias.off() < rounding<T>());
}

template <class T>
void check_embedding(std::int64_t batch, std::int64_t sequence, std::int64_t channels,
                     bool positions, std::int64_t vocabulary = 13) {
  const Gpu gpu;
  const std::int64_t rows = batch * sequence;
  const gpt::testing::RandomBatch tokens(batch, sequence, vocabulary);
  Array<std::int32_t> device_tokens(tokens.tokens, gpu.stream());
  Both<T> table("table", vocabulary * channels, gpu), places("places", sequence * channels, gpu),
      out("out", rows * channels, gpu), dout("dout", rows * channels, gpu),
      dtable("dtable", vocabulary * channels, gpu), dplaces("dplaces", sequence * channels, gpu);
  cuda::TokenOrder order(rows, vocabulary, gpu.stream());
  cuda::DeviceBuffer<float> scratch(cuda::embed_scratch(rows, channels));
  const auto by_token = [&] {
    std::vector<std::int32_t> by(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < by.size(); ++i) by[i] = static_cast<std::int32_t>(i);
    std::stable_sort(by.begin(), by.end(), [&](std::int32_t a, std::int32_t b) {
      return tokens.tokens[static_cast<std::size_t>(a)] <
             tokens.tokens[static_cast<std::size_t>(b)];
    });
    return by;
  }();
  const std::int32_t* sorted = order.sort(device_tokens.data());
  const auto& k = kernels<double>();
  k.embed_forward({tokens.tokens.data(), table.exact.data(),
                   positions ? places.exact.data() : nullptr, out.exact.data(), sequence, channels},
                  {0, rows});
  k.embed_backward({tokens.tokens.data(), by_token.data(), dout.exact.data(), dtable.exact.data(),
                    positions ? dplaces.exact.data() : nullptr, rows, sequence, channels},
                   {0, channels});
  cuda::embed_forward(
      EmbedForward<T>{device_tokens.data(), table.data(), positions ? places.data() : nullptr,
                      out.data(), sequence, channels},
      rows, gpu.stream());
  cuda::embed_backward(
      EmbedBackward<T>{device_tokens.data(), sorted, dout.data(), dtable.data(),
                       positions ? dplaces.data() : nullptr, rows, sequence, channels},
      scratch.data(), gpu.stream());
  CHECK(out.off() < rounding<T>());
  CHECK(dtable.off() < rounding<T>());
  CHECK(dplaces.off() < rounding<T>());
}

template <class T>
void check_elements(std::int64_t count) {
  const Gpu gpu;
  const auto& k = kernels<double>();
  Both<T> in("in", count, gpu), up("up", count, gpu), out("out", count, gpu),
      product("product", count, gpu), gradient("gradient", count, gpu),
      gradient_2("gradient_2", count, gpu), dgate("dgate", count, gpu), sum("sum", count, gpu);
  k.gelu_forward(in.exact.data(), out.exact.data(), {0, count});
  k.gelu_backward(in.exact.data(), gradient.exact.data(), {0, count});
  k.swiglu_forward({in.exact.data(), up.exact.data(), product.exact.data()}, {0, count});
  k.swiglu_backward({in.exact.data(), up.exact.data(), gradient_2.exact.data(), dgate.exact.data()},
                    {0, count});
  k.add(in.exact.data(), sum.exact.data(), sum.exact.data(), {0, count});
  cuda::gelu_forward<T>(in.data(), out.data(), count, gpu.stream());
  cuda::gelu_backward<T>(in.data(), gradient.data(), count, gpu.stream());
  const RowsOf one_row{1, count, count};
  cuda::swiglu_forward(SwigluForward<T>{in.data(), up.data(), product.data()}, one_row,
                       gpu.stream());
  cuda::swiglu_backward(SwigluBackward<T>{in.data(), up.data(), gradient_2.data(), dgate.data()},
                        one_row, gpu.stream());
  cuda::add<T>(in.data(), sum.data(), sum.data(), count, gpu.stream());
  for (const Both<T>* result : {&out, &gradient, &product, &gradient_2, &dgate, &sum})
    CHECK(result->off() < rounding<T>());
}

// Rows have `gap` more elements: gate, up and a gap are adjacent, and so are their gradients.
template <class T>
void check_swiglu_with_gaps(std::int64_t width, std::int64_t gap) {
  const Gpu gpu;
  constexpr std::int64_t rows = 37;
  const std::int64_t distance = 2 * width + gap;
  Both<T> in("in", rows * distance, gpu), gradients("gradients", rows * distance, gpu),
      product("product", rows * width, gpu);
  for (std::int64_t r = 0; r < rows; ++r) {
    double *const gate = in.exact.data() + r * distance, *const up = gate + width,
                  *const dgate = gradients.exact.data() + r * distance;
    kernels<double>().swiglu_forward({gate, up, product.exact.data() + r * width}, {0, width});
    kernels<double>().swiglu_backward({gate, up, dgate + width, dgate}, {0, width});
  }
  const RowsOf all{rows, width, distance};
  cuda::swiglu_forward(SwigluForward<T>{in.data(), in.data() + width, product.data()}, all,
                       gpu.stream());
  cuda::swiglu_backward(
      SwigluBackward<T>{in.data(), in.data() + width, gradients.data() + width, gradients.data()},
      all, gpu.stream());
  CHECK(product.off() < rounding<T>());
  CHECK(gradients.off() < rounding<T>());
}

// `gap`: elements after the heads of each row.
template <class T>
void check_rotation(std::int64_t channels, std::int64_t gap = 0) {
  const Gpu gpu;
  constexpr std::int64_t sequence = 7, rows = 3 * sequence, heads = 3;
  const std::int64_t distance = heads * channels + gap;
  Both<T> data("data", rows * distance, gpu);
  Both<float> cosines("cosines", sequence * channels / 2, gpu),
      sines("sines", sequence * channels / 2, gpu);
  for (const int direction : {1, -1}) {
    kernels<double>().rotate({data.exact.data(), cosines.exact.data(), sines.exact.data(), sequence,
                              heads, channels, distance, static_cast<double>(direction)},
                             {0, rows});
    cuda::rotate(Rotation<T>{data.data(), cosines.data(), sines.data(), sequence, heads, channels,
                             distance, static_cast<float>(direction)},
                 rows, gpu.stream());
    CHECK(data.off() < 2 * rounding<T>());  // rounded once per direction
  }
}

template <class T>
void check_linear(WeightLayout layout, bool bias) {
  const Gpu gpu;
  zero::ThreadPool pool(1);
  Matmul matmul(pool);
  cuda::DeviceMatmul products(gpu.stream());
  const LinearShape shape{37, 19, 23, layout, bias, true};
  Linear<double> expected(shape, matmul);
  cuda::Linear<T> linear(shape, products);
  Both<T> x("x", 37 * 19, gpu), y("y", 37 * 23, gpu), sum("sum", 37 * 23, gpu),
      weight("weight", 19 * 23, gpu), shift("shift", 23, gpu), dx("dx", 37 * 19, gpu),
      dy("dy", 37 * 23, gpu), dweight("dweight", 19 * 23, gpu), dbias("dbias", 23, gpu);
  cuda::DeviceBuffer<float> scratch(cuda::column_scratch(37, 23));
  const LinearValues<double> cpu{weight.exact.data(), bias ? shift.exact.data() : nullptr};
  const LinearValues<T> device{weight.data(), bias ? shift.data() : nullptr};
  for (const float beta : {1.0f, 0.0f}) {
    linear.forward(x.data(), device, y.data());
    linear.forward(x.data(), device, sum.data(), sum.data());
    linear.input_gradient(dy.data(), weight.data(), dx.data());
    linear.parameter_gradients(x.data(), dy.data(), {{dweight.data(), beta}, dbias.data()},
                               scratch.data());
    expected.forward(x.exact.data(), cpu, y.exact.data());
    expected.forward(x.exact.data(), cpu, sum.exact.data(), true);
    expected.input_gradient(dy.exact.data(), weight.exact.data(), dx.exact.data());
    expected.parameter_gradients(x.exact.data(), dy.exact.data(),
                                 {{dweight.exact.data(), beta}, dbias.exact.data()});
    for (const Both<T>* result : {&y, &sum, &dx, &dweight, &dbias})
      CHECK(result->off() < 2 * rounding<T>());  // rounded once per rotation
  }
}

// Widths that cuBLASLt's epilogues accept, and one that they do not.
template <class T>
void check_gelu_in_products(std::int64_t in, std::int64_t out) {
  const Gpu gpu;
  zero::ThreadPool pool(1);
  Matmul matmul(pool);
  cuda::DeviceMatmul products(gpu.stream());
  constexpr std::int64_t rows = 37;
  const LinearShape shape{rows, in, out};
  Linear<double> expected(shape, matmul);
  cuda::Linear<T> linear(shape, products);
  Both<T> x("x", rows * in, gpu), before("before", rows * out, gpu), y("y", rows * out, gpu),
      weight("weight", in * out, gpu), shift("shift", out, gpu), dx("dx", rows * in, gpu),
      dy("dy", rows * out, gpu);
  const auto& k = kernels<double>();
  expected.forward(x.exact.data(), {weight.exact.data(), shift.exact.data()}, before.exact.data());
  k.gelu_forward(before.exact.data(), y.exact.data(), {0, rows * out});
  linear.forward_gelu(x.data(), {weight.data(), shift.data()}, before.data(), y.data());
  expected.input_gradient(dy.exact.data(), weight.exact.data(), dx.exact.data());
  k.gelu_backward(x.exact.data(), dx.exact.data(), {0, rows * in});
  linear.gelu_gradient(dy.data(), weight.data(), x.data(), dx.data());
  CHECK(before.off() < rounding<T>());
  // Applies to `before` too, if a kernel computes it; cuBLASLt may use the GPU's own tanh, with an
  // error of 2^-11.
  const double tanh = zero::dtype_of<T>::value == zero::DType::fp16 ? 4 : 2;
  CHECK(y.off() < tanh * rounding<T>());
  CHECK(dx.off() < tanh * rounding<T>());
}

// Our own kernels, or a library's, which also rounds the weights to T.
enum class By { own, library };

// Queries, keys and values are adjacent in each row, like GPT-2's.
template <class T>
void check_attention(const Dims& dims, const Gpu& gpu, By by = By::own) {
  zero::ThreadPool pool(2);
  Matmul matmul(pool);
  const std::int64_t queries = dims.query_channels(), keys = dims.key_channels(),
                     row = queries + 2 * keys, statistics = dims.batch * dims.heads * dims.sequence;
  Both<T> qkv("qkv", dims.rows() * row, gpu), out("out", dims.rows() * queries, gpu),
      dout("dout", dims.rows() * queries, gpu), dqkv("dqkv", dims.rows() * row, gpu);
  Both<float> sums("sums", statistics, gpu);
  cuda::DeviceBuffer<float> deltas(statistics);
  const auto split = [&](auto* data) {
    return Qkv<std::remove_pointer_t<decltype(data)>>{data, data + queries, data + queries + keys,
                                                      row, row};
  };
  Attention<double> expected(dims, matmul);
  expected.forward(split(static_cast<const double*>(qkv.exact.data())), out.exact.data(),
                   sums.exact.data());
  expected.backward({split(static_cast<const double*>(qkv.exact.data())), out.exact.data(),
                     dout.exact.data(), sums.exact.data(), split(dqkv.exact.data())});
  const auto values = split(static_cast<const T*>(qkv.data()));
  const cuda::AttentionForward<T> forward{dims, values, out.data(), sums.data()};
  const cuda::AttentionBackward<T> backward{
      dims, values, out.data(), dout.data(), sums.data(), deltas.data(), split(dqkv.data())};
  if (by == By::own) {
    cuda::attention_forward(forward, gpu.stream());
    cuda::attention_backward(backward, gpu.stream());
  } else {
    const cuda::AttentionShape shape{dims, zero::dtype_of<T>::value, {row, row}};
    const cuda::AttentionChoice choice = cuda::choose_attention(shape, gpu.stream());
    CHECK(choice.said != "");
    if (!choice.kernels) {
      MESSAGE("attention by ", choice.said);
      return;
    }
    const cuda::FusedAttention<T> fused(shape, *choice.kernels);
    fused.forward(forward);
    fused.backward(backward);
  }
  const double weights = by == By::own ? 1 : 2;
  CHECK(out.off() < weights * rounding<T>());
  // Libraries use the GPU's own logarithms and exponentials, with errors of 2^-22.
  CHECK(sums.off() < (by == By::own ? 1e-6 : 2e-5));
  // delta is computed from outputs rounded to T.
  CHECK(dqkv.off() < weights * 1.5 * rounding<T>());
}

template <class T>
void check_classifier(std::int64_t vocabulary) {
  const Gpu gpu;
  constexpr std::int64_t rows = 5, all_rows = 9;
  const std::int64_t distance_of_rows = (vocabulary + 127) / 128 * 128;
  Both<T> logits("logits", rows * distance_of_rows, gpu);
  Both<float> losses("losses", rows, gpu), scale("scale", 1, gpu), mean("mean", 1, gpu);
  const std::vector<std::int32_t> host_targets = {0, 3, static_cast<std::int32_t>(vocabulary - 1),
                                                  3, 1};
  Array<std::int32_t> targets(host_targets, gpu.stream());
  cuda::differentiate_logits<T>({logits.data(), rows, vocabulary, distance_of_rows, targets.data(),
                                 losses.data(), scale.data(), static_cast<float>(all_rows)},
                                cuda::prepare_classifier<T>(vocabulary), gpu.stream());
  cuda::mean_loss(losses.data(), rows, mean.data(), gpu.stream());
  mean.exact[0] = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    double* row = logits.exact.data() + r * static_cast<std::size_t>(distance_of_rows);
    losses.exact[r] = kernels<double>().cross_entropy(row, vocabulary, host_targets[r],
                                                      scale.exact[0] / all_rows);
    mean.exact[0] += losses.exact[r] / rows;
    std::fill(row + vocabulary, row + distance_of_rows, 0.0);
  }
  CHECK(losses.off() < 1e-6);
  CHECK(mean.off() < 1e-6);
  CHECK(logits.off() < 2 * rounding<T>());  // small ones round more coarsely
}

TEST_CASE_TEMPLATE("gpu: norms, with their residual and parameters", T, FLOATING) {
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const std::int64_t channels : {1, 7, 40, 264, 300}) {
      check_norm<T>(dims_of(1, 1, channels, kind));
      check_norm<T>(dims_of(3, 37, channels, kind));
    }
  check_norm<T>(dims_of(1, 40, 2056, NormKind::layer));  // more than a block has columns
}

TEST_CASE_TEMPLATE("gpu: the embedding, its gradient in the order of tokens", T, FLOATING) {
  check_embedding<T>(3, 17, 24, true);
  check_embedding<T>(2, 9, 300, false);
  check_embedding<T>(1, 1, 5, true);
  // Runs of a token inside a segment of the order, across an end, and over whole segments.
  check_embedding<T>(4, 75, 20, true);
  check_embedding<T>(4, 80, 24, false, 1);
  check_embedding<T>(5, 64, 24, false, 3);
}

TEST_CASE_TEMPLATE("gpu: GELU and SwiGLU", T, FLOATING) {
  check_elements<T>(1);
  check_elements<T>(8 * 300);
  check_elements<T>(4099);
  check_swiglu_with_gaps<T>(8, 0);
  check_swiglu_with_gaps<T>(88, 24);
}

TEST_CASE_TEMPLATE("gpu: rotary embedding, forward and back", T, FLOATING) {
  check_rotation<T>(10);
  check_rotation<T>(48);
  check_rotation<T>(12, 8);
  check_rotation<T>(48, 96);
}

TEST_CASE_TEMPLATE("gpu: linear layers in both layouts", T, FLOATING) {
  for (const WeightLayout layout : {WeightLayout::in_out, WeightLayout::out_in})
    for (const bool bias : {true, false}) check_linear<T>(layout, bias);
}

TEST_CASE_TEMPLATE("gpu: GELU as part of a product", T, FLOATING) {
  check_gelu_in_products<T>(24, 40);
  check_gelu_in_products<T>(19, 23);
}

TEST_CASE_TEMPLATE("gpu: causal attention, grouped and not, in several tiles", T, FLOATING) {
  const Gpu gpu;
  const auto check = [&](std::int64_t batch, std::int64_t sequence, std::int64_t heads,
                         std::int64_t key_heads, std::int64_t head_channels) {
    Dims dims{.batch = batch, .sequence = sequence, .heads = heads};
    dims.key_heads = key_heads;
    dims.head_channels = head_channels;
    CAPTURE(sequence);
    CAPTURE(head_channels);
    check_attention<T>(dims, gpu);
  };
  check(1, 1, 1, 1, 16);
  check(2, 37, 3, 3, 20);
  check(1, 101, 2, 1, 64);
  check(1, 45, 4, 2, 72);
  check(1, 34, 1, 1, 128);
}

TEST_CASE_TEMPLATE("gpu: causal attention by a library's kernels, in parts of a batch", T,
                   zero::bf16, zero::fp16) {
  const Gpu gpu;
  Dims dims{.batch = 4, .sequence = 40, .heads = 4};
  dims.key_heads = 4;
  dims.head_channels = 64;
  check_attention<T>(dims, gpu, By::library);
  dims.batch = 3;
  dims.sequence = 101;
  dims.key_heads = 2;
  dims.head_channels = 128;
  check_attention<T>(dims, gpu, By::library);
}

TEST_CASE("gpu: a batch is cut into equal parts whose workspace fits") {
  const auto linear = [](std::int64_t samples) { return 10 * samples + 1; };
  CHECK(cuda::samples_within({121, 121}, 12, linear) == 12);
  CHECK(cuda::samples_within({120, 120}, 12, linear) == 6);
  CHECK(cuda::samples_within({30, 30}, 12, linear) == 2);
  CHECK(cuda::samples_within({30, 30}, 7, linear) == 1);
  CHECK(cuda::samples_within({10, 10}, 12, linear) == 0);
  CHECK(cuda::samples_within({10, 11}, 12, linear) == 1);
  CHECK(cuda::samples_within({10, 100}, 12, linear) == 1);
}

TEST_CASE_TEMPLATE("gpu: cross-entropy in the logits' place", T, FLOATING) {
  check_classifier<T>(7);
  check_classifier<T>(256);
  check_classifier<T>(1031);
  check_classifier<T>(9001);  // more than a block can keep, or its threads can read at once
}

}  // namespace
