// A chain of layers y = tanh(x * w + b) between two uses of an outer unit's scale. A program may
// call the layers in any order and any number of times, like PyTorch calls modules of a model.
// Kernels are plain loops; on a device they are queued on its compute stream.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zero/zero.h"

namespace chain {

inline constexpr int width = 37;
using Vector = std::vector<float>;
using Launch = std::function<void(std::function<void()>)>;

// Properties of the units' declaration in addition to their parameters.
struct Declaration {
  std::vector<std::string> layers = {"a", "b", "c", "d"};
  bool nested = true, optional = false, learns = false;
  bool free = false;                    // any order of optional units, any number of micro steps
  std::vector<std::string> order = {};  // with repetitions; empty: the layers
};

inline zero::ModelSpec describe(const Declaration& declared) {
  zero::ModelSpec model;
  zero::UnitSpec& outer = model.unit("outer").param("scale", {width});
  if (declared.optional) outer.optional();
  for (const std::string& name : declared.layers) {
    zero::UnitSpec& layer = model.unit(name);
    layer.param("w", {width}).param("b", {width});
    if (declared.nested) layer.within("outer");
    if (declared.optional) layer.optional();
  }
  // The first use of each is declared with its parameters.
  std::map<std::string, int> uses;
  for (const std::string& name : declared.order)
    if (++uses[name] > 1) model.again(name);
  if (declared.learns) model.learn_order();
  if (declared.free) model.any_order().any_micro_steps();
  return model;
}

inline void fill(zero::ParamShard shard) {
  std::int64_t element = shard.begin;
  for (float& value : shard.values)
    value = 0.5f + 0.01f * static_cast<float>((7 * ++element + 3 * shard.name.front()) % 53);
}

// One micro step through an engine. If a layer is used several times, it writes its gradient at the
// last use in backward (`whole_gradients`, like autograd), or adds to it at each.
class Pass {
 public:
  Pass(zero::Engine& engine, Launch launch, bool whole_gradients)
      : engine_(engine), launch_(std::move(launch)), whole_gradients_(whole_gradients) {}

  // Returns the address of the future loss, the mean of y * y / 2.
  const float* forward(const std::vector<std::string>& calls, float input) {
    auto outer = engine_.unit("outer").forward();
    const float* scale = outer.value<float>("scale");
    Vector* x = add(Vector(width, input));
    Vector* first = add(Vector(width));
    launch_([=] {
      for (int i = 0; i < width; ++i) (*first)[i] = (*x)[i] * scale[i];
    });
    tape_ = {{"", x, first}};
    for (const std::string& name : calls) {
      auto layer = engine_.unit(name).forward();
      Vector *from = tape_.back().y, *y = add(Vector(width));
      launch_([=, w = layer.value<float>("w"), b = layer.value<float>("b")] {
        for (int i = 0; i < width; ++i) (*y)[i] = std::tanh((*from)[i] * w[i] + b[i]);
      });
      tape_.push_back({name, from, y});
      ++uses_[name];
    }
    Vector *from = tape_.back().y, *y = add(Vector(width));
    float* loss = &add(Vector(1))->front();
    launch_([=] {
      for (int i = 0; i < width; ++i) {
        (*y)[i] = (*from)[i] * scale[i];
        *loss += (*y)[i] * (*y)[i] / (2 * width);
      }
    });
    tape_.push_back({"", from, y});
    return loss;
  }

  // Runs back to the call with `calls_left` calls before it.
  void backward(std::size_t calls_left = 0) {
    auto outer = engine_.unit("outer").backward();
    Vector* dy = add(Vector(width));
    float *scale_gradient = outer.grad<float>("scale"),
          *scale = const_cast<float*>(outer.value<float>("scale"));
    launch_([=, last = tape_.back()] {
      for (int i = 0; i < width; ++i) {
        const float d = (*last.y)[i] / width;
        scale_gradient[i] += d * (*last.x)[i];
        (*dy)[i] = d * scale[i];
      }
    });
    for (std::size_t call = tape_.size() - 2; call > calls_left; --call)
      layer_backward(tape_[call], dy);
    if (calls_left > 0) return;
    launch_([=, first = tape_.front()] {
      for (int i = 0; i < width; ++i) scale_gradient[i] += (*dy)[i] * (*first.x)[i];
    });
  }

 private:
  struct Call {
    std::string layer;
    Vector *x, *y;
  };

  Vector* add(Vector values) {
    memory_.push_back(std::make_unique<Vector>(std::move(values)));
    return memory_.back().get();
  }

  void layer_backward(const Call& call, Vector* dy) {
    Vector*& sum = sums_[call.layer];
    const bool waits = whole_gradients_ && --uses_[call.layer] > 0;
    const auto kernel = [=](const float* w, float* dw, float* db) {
      for (int i = 0; i < width; ++i) {
        const float y = (*call.y)[i], d = (*dy)[i] * (1 - y * y);
        dw[i] += d * (*call.x)[i];
        db[i] += d;
        (*dy)[i] = d * w[i];
      }
    };
    if (!whole_gradients_) {
      auto layer = engine_.unit(call.layer).backward();
      launch_([=, w = layer.value<float>("w"), dw = layer.grad<float>("w"),
               db = layer.grad<float>("b")] { kernel(w, dw, db); });
      return;
    }
    if (sum == nullptr) sum = add(Vector(2 * width));
    float *dw = sum->data(), *db = dw + width;
    if (waits) {
      auto layer = engine_.unit(call.layer).forward();
      launch_([=, w = layer.value<float>("w")] { kernel(w, dw, db); });
      return;
    }
    auto layer = engine_.unit(call.layer).backward();
    const auto copy = [](zero::GradTarget<float> to, const float* from) {
      for (int i = 0; i < width; ++i) to.data[i] = to.beta * to.data[i] + from[i];
    };
    launch_([=, w = layer.value<float>("w"), to_w = layer.grad_target<float>("w"),
             to_b = layer.grad_target<float>("b")] {
      kernel(w, dw, db);
      copy(to_w, dw);
      copy(to_b, db);
    });
  }

  zero::Engine& engine_;
  Launch launch_;
  bool whole_gradients_;
  std::vector<std::unique_ptr<Vector>> memory_;  // read by queued kernels
  std::vector<Call> tape_;
  std::map<std::string, int> uses_;
  std::map<std::string, Vector*> sums_;
};

}  // namespace chain
