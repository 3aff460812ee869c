// The blocks of a model, forward and backward: a walker over the plan of a family's list of
// operations. Activations are kept per layer, or held for one layer at a time and recomputed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/gpt/cpu/attention.h"
#include "examples/gpt/cpu/linear.h"
#include "examples/gpt/cpu/norm.h"
#include "examples/gpt/cpu/rope.h"
#include "examples/gpt/model/block_plan.h"
#include "examples/gpt/model/dims.h"
#include "examples/gpt/model/parameters.h"

namespace gpt {

// The memory kept between forward and backward: everything that backward reads, or only each
// block's input, from which backward computes the rest again. Both give the same bits.
enum class Activations { keep, recompute };

// The layers, of this many, whose activations are in memory at once.
inline std::int64_t held_layers(Activations activations, std::int64_t layers) {
  return activations == Activations::keep ? layers : std::min<std::int64_t>(layers, 1);
}

// Memory that a model has of its own.
struct HeldActivations {
  // Layers whose activations are held, times the micro-batches in flight; others are recomputed.
  std::int64_t layers = 1;
  bool passes_itself = true;  // between its parts; false in a stage of a pipeline
  bool head = true;           // runs the loss head; of a pipeline, only the last stage does
};

// A layer's backward() must follow a forward() of the same micro-batch with the same parameters.
template <class T>
class Blocks {
 public:
  virtual ~Blocks() = default;

  // in [rows, C] -> out [rows, C]
  virtual void forward(int layer, const T* in, const ParameterValues<T>& values, T* out) = 0;
  // `gradient` holds the gradient of the block's output, and on return the input's.
  virtual void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient) = 0;
  virtual std::int64_t bytes() const = 0;
  // Returns the name of the kernels' origin, empty if there is no choice.
  virtual std::string attention() const = 0;
};

// Layers: the operations of a CPU (layers.h) or of a GPU (cuda/layers.h).
template <class Layers>
class ListedBlocks final : public Blocks<typename Layers::T> {
 public:
  using T = typename Layers::T;

  // Holds the activations of `held` layers; backward() recomputes those of the other layers.
  ListedBlocks(std::int64_t held, const Dims& dims, BlockPlan plan, const RopeConfig& rope,
               typename Layers::Products& matmul)
      : dims_(dims),
        plan_(std::move(plan)),
        layers_(dims, matmul, plan_.widest_sum, plan_.attention_rows),
        held_(static_cast<std::size_t>(held)) {
    for (const PlannedOperation& o : plan_.operations) {
      if (!Layers::joins_products && o.joined != 1)
        throw std::logic_error("these layers have no joined products");
      if (o.operation.kind == OperationKind::linear && o.joined > 0)
        linears_.emplace_back(
            LinearShape{dims.rows(), o.in_width, o.joined_width, o.operation.layout,
                        !o.operation.bias.empty(), o.adds[0], o.input_gradients[0].distance},
            matmul);
      if (o.operation.kind == OperationKind::rope && !rope_) rope_.emplace(layers_.make_rope(rope));
    }
    for (const std::int64_t width : plan_.slot_widths) slots_.emplace_back(dims.rows() * width);
    for (Held& one : held_) take(one);
  }

  void forward(int layer, const T* in, const ParameterValues<T>& values, T* out) override {
    const Pass pass{held_of(layer), in, out, nullptr};
    for (std::size_t i = 0; i < plan_.operations.size(); ++i) forward(i, pass, values);
    pass.held.layer = layer;
  }

  void backward(int layer, const T* in, ParameterGradients<T>& parameters, T* gradient) override {
    const Pass pass{held_of(layer), in, nullptr, gradient};
    if (pass.held.layer != layer)
      for (std::size_t i = 0; i < plan_.operations.size(); ++i)
        if (plan_.operations[i].recomputed) forward(i, pass, parameters);
    pass.held.layer = layer;
    for (const std::size_t i : plan_.backward) backward(plan_.operations[i], pass, parameters);
  }

  std::int64_t bytes() const override {
    std::int64_t bytes = layers_.bytes() + (rope_ ? rope_->bytes() : 0) + bytes_of(slots_);
    for (const Held& held : held_) {
      bytes += bytes_of(held.kept) + static_cast<std::int64_t>(held.log_sums.bytes());
      for (const Norm& norm : held.norms) bytes += norm.bytes();
    }
    return bytes;
  }
  std::string attention() const override { return layers_.attention(); }

 private:
  using Acc = typename Layers::Acc;
  using Linear = typename Layers::Linear;
  using Norm = typename Layers::Norm;
  using Rope = typename Layers::Rope;
  using Buffer = typename Layers::template Buffer<T>;

  // Values that forward leaves for the backward pass of the layer that ran last.
  struct Held {
    std::vector<Buffer> kept;
    std::vector<Norm> norms;
    typename Layers::template Buffer<Acc> log_sums;
    int layer = -1;
  };
  struct Pass {
    Held& held;
    const T* in;
    T* out;
    T* gradient;
  };

  void take(Held& held) const {
    for (const std::int64_t width : plan_.kept_widths) held.kept.emplace_back(dims_.rows() * width);
    for (const PlannedOperation& o : plan_.operations)
      if (o.operation.kind == OperationKind::norm) held.norms.push_back(layers_.make_norm(o.width));
    held.log_sums = decltype(held.log_sums)(dims_.batch * dims_.heads * dims_.sequence);
  }
  static std::int64_t bytes_of(const std::vector<Buffer>& buffers) {
    std::size_t bytes = 0;
    for (const Buffer& buffer : buffers) bytes += buffer.bytes();
    return static_cast<std::int64_t>(bytes);
  }
  Held& held_of(int layer) { return held_[static_cast<std::size_t>(layer) % held_.size()]; }

  T* to(const Pass& pass, Place place) {
    switch (place.in) {
      case Place::In::kept:
        return pass.held.kept[place.index].data() + place.column;
      case Place::In::slot:
        return slots_[place.index].data() + place.column;
      case Place::In::gradient:
        return pass.gradient;
      default:
        return pass.out;
    }
  }
  const T* from(const Pass& pass, Place place) {
    return place.in == Place::In::block_input ? pass.in : to(pass, place);
  }
  std::int64_t elements(const PlannedOperation& o) const { return dims_.rows() * o.width; }
  // Returns the rows of an operation's width at this place.
  RowsOf rows(const PlannedOperation& o, Place place) const {
    return {dims_.rows(), o.width, place.distance > 0 ? place.distance : o.width};
  }
  // Takes three activations, or a single one that holds all three in each row.
  template <class P, class At>
  Qkv<P> queries_keys_values(const std::vector<Place>& places, const At& at) const {
    const auto [query, key] = plan_.attention_rows;
    if (places.size() == 3) return {at(places[0]), at(places[1]), at(places[2]), query, key};
    P* all = at(places[0]);
    return {all, all + dims_.query_channels(), all + dims_.query_channels() + dims_.key_channels(),
            query, key};
  }
  Qkv<const T> queries_keys_values(const PlannedOperation& o, const Pass& pass) {
    return queries_keys_values<const T>(o.inputs, [&](Place p) { return from(pass, p); });
  }

  // Returns NormValues or LinearValues, or their gradients.
  template <class Values>
  static Values values_of(const Operation& operation, const ParameterValues<T>& of) {
    return {of.value(operation.weight),
            operation.bias.empty() ? nullptr : of.value(operation.bias)};
  }
  static T* bias_gradient(const Operation& operation, ParameterGradients<T>& of) {
    return operation.bias.empty() ? nullptr : of.grad(operation.bias);
  }

  void forward(std::size_t index, const Pass& pass, const ParameterValues<T>& values) {
    const PlannedOperation& o = plan_.operations[index];
    if (o.in_linear_before || o.joined == 0) return;
    const auto input = [&](std::size_t i) { return from(pass, o.inputs[i]); };
    T* output = to(pass, o.output);
    switch (o.operation.kind) {
      case OperationKind::norm:
        return pass.held.norms[o.index].forward(
            input(0), values_of<NormValues<T>>(o.operation, values), output);
      case OperationKind::linear:
        return forward_linear(index, pass, values);
      case OperationKind::attention:
        return layers_.attend(queries_keys_values(o, pass), output, pass.held.log_sums.data());
      case OperationKind::rope:
        return layers_.turn(*rope_, output, rows(o, o.output));
      case OperationKind::gelu:
        return layers_.gelu_forward(input(0), output, elements(o));
      case OperationKind::swiglu:
        return layers_.swiglu_forward({input(0), input(1), output}, rows(o, o.inputs[0]));
      case OperationKind::add:
        return layers_.add(input(0), input(1), output, elements(o));
    }
  }

  // Runs the linear together with the GELU or the addition that follows.
  void forward_linear(std::size_t index, const Pass& pass, const ParameterValues<T>& values) {
    const PlannedOperation& o = plan_.operations[index];
    Linear& linear = linears_[o.index];
    const LinearValues<T> parameters{
        weight_of(o, values), o.operation.bias.empty() ? nullptr : values.value(o.operation.bias)};
    const T* x = from(pass, o.inputs[0]);
    const bool is_last = index + 1 == plan_.operations.size();
    if (is_last || !plan_.operations[index + 1].in_linear_before)
      return linear.forward(x, parameters, to(pass, o.output));
    const PlannedOperation& next = plan_.operations[index + 1];
    T* result = to(pass, next.output);
    if (next.operation.kind == OperationKind::gelu)
      layers_.product_and_gelu(linear, x, parameters, to(pass, o.output), result, elements(o));
    else
      layers_.add_product(linear, x, parameters, from(pass, next.inputs[0]), result, elements(o));
  }

  // Returns data_of(weight's name) for each linear whose product is joined with the first.
  template <class Part, class DataOf>
  static std::vector<Part> joined_parts(const PlannedOperation& first, const DataOf& data_of) {
    std::vector<Part> parts;
    parts.reserve(first.joined);
    for (const PlannedOperation& o : std::span(&first, first.joined))
      parts.push_back({data_of(o.operation.weight), o.in_width * o.width});
    return parts;
  }
  const T* weight_of(const PlannedOperation& o, const ParameterValues<T>& of) {
    if constexpr (Layers::joins_products)
      if (o.joined > 1)
        return layers_.joined_weight(joined_parts<typename Layers::Weight>(
            o, [&](const std::string& name) { return of.value(name); }));
    return of.value(o.operation.weight);
  }
  void weight_gradients(const PlannedOperation& o, const Pass& pass, ParameterGradients<T>& of) {
    Linear& linear = linears_[o.index];
    const T *x = from(pass, o.inputs[0]), *dy = to(pass, o.output_gradient);
    if constexpr (Layers::joins_products)
      if (o.joined > 1)
        return layers_.joined_gradients(
            linear, x, dy,
            joined_parts<typename Layers::WeightGradient>(
                o, [&](const std::string& name) { return of.target(name); }));
    layers_.parameter_gradients(linear, x, dy,
                                {of.target(o.operation.weight), bias_gradient(o.operation, of)});
  }

  void backward(const PlannedOperation& o, const Pass& pass, ParameterGradients<T>& parameters) {
    if (o.joined == 0) return;
    const auto input = [&](std::size_t i) { return from(pass, o.inputs[i]); };
    const auto gradient = [&](std::size_t i) { return to(pass, o.input_gradients[i]); };
    T* doutput = to(pass, o.output_gradient);
    switch (o.operation.kind) {
      case OperationKind::norm:
        return backward_norm(o, pass, parameters);
      case OperationKind::linear:
        return backward_linear(o, pass, parameters);
      case OperationKind::attention:
        return layers_.attend_backward(
            {queries_keys_values(o, pass), to(pass, o.output), doutput, pass.held.log_sums.data(),
             queries_keys_values<T>(o.input_gradients, [&](Place p) { return to(pass, p); })});
      case OperationKind::rope:
        return layers_.turn_back(*rope_, doutput, rows(o, o.output_gradient));
      case OperationKind::gelu:
        if (!o.gradient_in_linear_after) layers_.gelu_backward(input(0), doutput, elements(o));
        return;
      case OperationKind::swiglu:
        return layers_.swiglu_backward({input(0), input(1), doutput, gradient(0)},
                                       rows(o, o.inputs[0]));
      case OperationKind::add:
        for (std::size_t i = 0; i < o.adds.size(); ++i)
          if (o.adds[i]) layers_.add(gradient(i), doutput, gradient(i), elements(o));
    }
  }

  void backward_norm(const PlannedOperation& o, const Pass& pass,
                     ParameterGradients<T>& parameters) {
    T* dinput = to(pass, o.input_gradients[0]);
    if (!o.adds[0]) layers_.clear(dinput, elements(o));
    layers_.norm_backward(
        pass.held.norms[o.index], to(pass, o.output_gradient), from(pass, o.inputs[0]),
        values_of<NormValues<T>>(o.operation, parameters), dinput,
        {parameters.grad(o.operation.weight), bias_gradient(o.operation, parameters)});
  }

  void backward_linear(const PlannedOperation& o, const Pass& pass,
                       ParameterGradients<T>& parameters) {
    Linear& linear = linears_[o.index];
    const T* dy = to(pass, o.output_gradient);
    T* dx = to(pass, o.input_gradients[0]);
    weight_gradients(o, pass, parameters);
    const T* weight = weight_of(o, parameters);
    if (!o.gelu) return linear.input_gradient(dy, weight, dx);
    const PlannedOperation& gelu = plan_.operations[*o.gelu];
    layers_.gelu_input_gradient(linear, dy, weight, from(pass, gelu.inputs[0]), dx, elements(gelu));
  }

  Dims dims_;
  BlockPlan plan_;
  Layers layers_;
  std::optional<Rope> rope_;
  std::vector<Linear> linears_;
  std::vector<Buffer> slots_;
  std::vector<Held> held_;
};

}  // namespace gpt
