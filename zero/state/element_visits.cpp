#include "zero/state/element_visits.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "zero/state/array_exchange.h"

namespace zero {

std::span<float> ParamElements::state(std::string_view name) const {
  std::string known;
  for (const auto& [own, values] : states) {
    if (own == name) return values;
    known += (known.empty() ? "" : ", ") + std::string(own);
  }
  throw UsageError("parameter " + std::string(this->name) + " has no state \"" + std::string(name) +
                   "\"; " +
                   (known.empty() ? "it has none: declare it by ModelSpec::state()"
                                  : "expected one of " + known));
}

namespace detail {

namespace {

constexpr std::int64_t most_elements = 1 << 20;  // per call, since no memory is planned for these

// A copy of some elements of an array in fp32, written back if changed.
class ElementCopy {
 public:
  ElementCopy(StateStore& store, const ArrayId& array, const ParamRange& piece)
      : store_(store),
        array_(array),
        begin_(piece.segment_begin),
        values_(store.read_floats(array, piece.range())),
        before_(values_) {}

  std::span<float> values() { return values_; }
  bool changed() const {
    return std::memcmp(values_.data(), before_.data(), values_.size() * sizeof(float)) != 0;
  }
  void write_to(const ArrayId& array) const {
    store_.write(array, begin_, DType::fp32, std::as_bytes(std::span(values_)));
  }
  void write_back() const { write_to(array_); }

 private:
  StateStore& store_;
  const ArrayId array_;
  const std::int64_t begin_;
  std::vector<float> values_, before_;
};

// Whether visits of a segment have changed arrays on this rank.
struct Changes {
  bool values = false, states = false;
};

void visit_piece(TrainState& train, const SegmentId& id, const ParamRange& piece,
                 const ElementVisitor& visitor, std::optional<float> gradient_scale,
                 Changes& changes) {
  StateStore& store = *train.store;
  const ParamDeclaration& declaration = train.param(piece.param);
  const bool has_master = train.arrays.segment(id).has_master();
  ElementCopy value(store, {id, has_master ? ArrayKind::master : ArrayKind::parameter_shard},
                    piece);
  ParamElements elements{declaration.name, declaration.shape, piece.param_begin, value.values()};
  std::optional<ElementCopy> gradient;
  if (gradient_scale) {
    gradient.emplace(store, ArrayId{id, ArrayKind::gradient_shard}, piece);
    for (float& element : gradient->values()) element *= *gradient_scale;
    elements.gradient = gradient->values();
  }
  std::deque<ElementCopy> states;  // never moves elements, so that spans stay valid
  const std::vector<std::string>& names = train.plan.updates.state_names();
  for (int k = 0; k < std::ssize(names); ++k) {
    const ArrayId array{id, ArrayKind::state, k};
    if (!store.holds(array, piece.param)) continue;
    elements.states.emplace_back(names[k], states.emplace_back(store, array, piece).values());
  }
  visitor(elements);
  if (value.changed()) {
    changes.values = true;
    value.write_to({id, ArrayKind::parameter_shard});
    if (has_master) value.write_back();
  }
  for (const ElementCopy& state : states)
    if (state.changed()) changes.states = true, state.write_back();
}

}  // namespace

bool visit_elements(TrainState& train, const ElementVisitor& visitor,
                    std::optional<float> gradient_scale) {
  std::vector<SegmentId> trained;
  std::vector<std::int64_t> changed;  // per segment: bit 0 values, bit 1 states
  for (const SegmentId& id : train.layout().segments()) {
    const Segment& segment = train.layout().segment(id);
    if (!segment.trainable) continue;
    Changes changes;
    for (const ParamRange& piece : train.own_params(segment))
      for (std::int64_t from = 0; from < piece.count; from += most_elements)
        visit_piece(train, id,
                    {piece.param, piece.param_begin + from, piece.segment_begin + from,
                     std::min(most_elements, piece.count - from)},
                    visitor, gradient_scale, changes);
    trained.push_back(id);
    changed.push_back((changes.values ? 1 : 0) | (changes.states ? 2 : 0));
  }
  const std::vector<std::int64_t> all = train.ranks.gather_words("Engine::visit()", changed);
  for (std::size_t i = 0; i < all.size(); ++i) changed[i % changed.size()] |= all[i];
  bool values = false;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    if ((changed[i] & 1) != 0) values = true, spread_parameters(train, trained[i]);
    if ((changed[i] & 2) != 0) spread_states(train, trained[i]);
  }
  return values;
}

}  // namespace detail
}  // namespace zero
