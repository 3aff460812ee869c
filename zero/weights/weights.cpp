#include "zero/weights/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "optim/gradient_norm.h"
#include "zero/base/number_text.h"
#include "zero/state/array_exchange.h"
#include "zero/weights/value_stream.h"

namespace zero::detail {

namespace {

// Initial contents for a fill callback; no initializer writes this NaN by accident.
constexpr std::uint32_t unfilled_bits = 0x7fa5c3d1u;
constexpr std::int64_t most_filled_elements = 1 << 20;  // per call

}  // namespace

void Weights::fill_piece(const SegmentId& id, const ParamRange& piece, const Fill& fill) {
  const ParamDeclaration& declaration = train_.param(piece.param);
  std::vector<float> values(piece.count, std::bit_cast<float>(unfilled_bits));
  fill({declaration.name, declaration.shape, piece.param_begin, values});
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::bit_cast<std::uint32_t>(values[i]) == unfilled_bits)
      throw UsageError("parameter " + declaration.name + " was left unfilled from element " +
                       std::to_string(piece.param_begin + static_cast<std::int64_t>(i)) +
                       " on rank " + std::to_string(train_.rank()) +
                       "; the callback must write every value of its shard");
  require_finite(piece.param, values, piece.param_begin, "Engine::initialize()");
  const ArrayId parameter{id, ArrayKind::parameter_shard}, master{id, ArrayKind::master};
  StateStore& store = *train_.store;
  const auto bytes = std::as_bytes(std::span(values));
  store.write(parameter, piece.segment_begin, DType::fp32, bytes);
  if (train_.layout().segment(id).trainable && store.dtype_of(master) != store.dtype_of(parameter))
    store.write(master, piece.segment_begin, DType::fp32, bytes);
  if (train_.has_values[piece.param] || !train_.layout().segment(id).trainable) return;
  for (const StateDeclaration& state : train_.model.states)
    if (state.start == StateStart::value)
      store.write(*store.find(id, state.name), piece.segment_begin, DType::fp32, bytes);
}

Weights::Fill Weights::rounded(const Fill& fill) const {
  if (!train_.config.zero_core.round_initial_weights) return fill;
  return [this, fill](const ParamShard& shard) {
    fill(shard);
    const Place& place = train_.place(train_.model.find(shard.name));
    const DType dtype = train_.store->dtype_of(ArrayId{place, ArrayKind::parameter_shard});
    const auto count = std::ssize(shard.values);
    std::vector<std::byte> narrow(count * size_of(dtype));
    optim::cast(shard.values.data(), DType::fp32, narrow.data(), dtype, count);
    optim::cast(narrow.data(), dtype, shard.values.data(), DType::fp32, count);
  };
}

// Fills part by part, because no memory is planned for the callback's values.
void Weights::fill_where(const Fill& fill, const std::function<bool(int param)>& wanted) {
  for (const SegmentId& id : train_.layout().segments()) {
    const Segment& segment = train_.layout().segment(id);
    if (std::ranges::none_of(segment.params, wanted, &ParamPlace::param)) continue;
    for (const ParamRange& piece : train_.own_params(segment))
      for (std::int64_t from = 0; from < piece.count && wanted(piece.param);
           from += most_filled_elements)
        fill_piece(id,
                   {piece.param, piece.param_begin + from, piece.segment_begin + from,
                    std::min(most_filled_elements, piece.count - from)},
                   fill);
    spread_parameters(train_, id);
    if (!train_.model.states.empty()) spread_states(train_, id);
  }
  for (int p = 0; p < std::ssize(train_.has_values); ++p)
    if (wanted(p)) train_.has_values[p] = 1;
  train_.replicas_checked = false;
}

int Weights::find_param(std::string_view name, std::ptrdiff_t elements, const char* call) const {
  const int index = train_.model.find(name);
  if (index < 0) throw UsageError("no parameter is named \"" + std::string(name) + "\"");
  if (const std::int64_t own = train_.param(index).elements; elements != own)
    throw UsageError(std::string(call) + ": " + train_.param(index).name + " has " +
                     std::to_string(own) + " elements, the span has " + std::to_string(elements));
  return index;
}

ArrayId Weights::find_array(int param, std::string_view what) const {
  const std::optional<ArrayId> array = train_.store->find(train_.place(param), what);
  if (!array || !train_.store->holds(*array, param))
    throw UsageError("parameter " + train_.param(param).name +
                     (array ? " is updated by a rule that" : " is frozen and") + " has no " +
                     std::string(what));
  return *array;
}

void Weights::write(std::string_view name, std::span<const float> whole) {
  const int index = find_param(name, std::ssize(whole), "Engine::write()");
  require_equal(index, std::as_bytes(whole), "was given to Engine::write()");
  require_finite(index, whole, 0, "Engine::write()");
  fill_where(
      [&](const ParamShard& shard) {
        std::ranges::copy(whole.subspan(shard.begin, shard.values.size()), shard.values.begin());
      },
      [&](int param) { return param == index; });
}

bool Weights::visit(const ElementVisitor& visitor, std::optional<float> gradient_scale) {
  train_.require_values(" to visit");
  if (!visit_elements(train_, visitor, gradient_scale)) return false;
  train_.replicas_checked = false;
  return true;
}

void Weights::write_state(std::string_view name, std::string_view state,
                          std::span<const float> whole) {
  const int index = find_param(name, std::ssize(whole), "Engine::write_state()");
  const ArrayId array = find_array(index, state);
  if (array.kind != ArrayKind::state)
    throw UsageError("Engine::write_state(): " + std::string(state) +
                     " is no state of the optimizer; Engine::write() sets values, and "
                     "StepOptions::inspect changes gradients");
  require_equal(index, std::as_bytes(whole), "was given to Engine::write_state()");
  require_finite(index, whole, 0, "Engine::write_state()");
  // All that this rank updates, even if peers have copies.
  const Segment& segment = train_.layout().segment(train_.place(index));
  for (const ParamRange& piece : params_in(train_.model, segment, train_.policy().updated(segment)))
    if (piece.param == index)
      train_.store->write(array, piece.segment_begin, DType::fp32,
                          std::as_bytes(whole.subspan(piece.param_begin, piece.count)));
}

void Weights::adopt(std::string_view name) {
  const int index = train_.model.find(name);
  if (index < 0) throw UsageError("no parameter is named \"" + std::string(name) + "\"");
  if (!train_.keeps_parameters())
    throw UsageError("parameter " + std::string(name) +
                     " rests as a shard, which the program cannot have written to");
  const Place& place = train_.place(index);
  compare_values(index);
  const ArrayId parameter{place, ArrayKind::parameter_shard}, master{place, ArrayKind::master};
  const Segment& segment = train_.layout().segment(place);
  StateStore& store = *train_.store;
  if (!segment.trainable || store.dtype_of(master) == store.dtype_of(parameter)) {
    for (const ParamRange& piece : train_.own_params(segment))
      if (piece.param == index) train_.changes.note_all(place, piece.range());
    return;
  }
  for (const ParamRange& piece : train_.own_params(segment))
    if (piece.param == index) adopt_piece(place, piece);
  spread_parameters(train_, place);
  train_.replicas_checked = false;
}

void Weights::adopt_piece(const SegmentId& id, const ParamRange& piece) {
  const ArrayId parameter{id, ArrayKind::parameter_shard}, master{id, ArrayKind::master};
  StateStore& store = *train_.store;
  const DType dtype = store.dtype_of(parameter);
  const std::int64_t width = size_of(dtype), begin = piece.segment_begin;
  std::vector<std::byte> value(piece.count * width), rounded(piece.count * width);
  store.read(parameter, begin, begin + piece.count, value.data());
  std::vector<float> now(piece.count), own = store.read_floats(master, piece.range());
  optim::cast(own.data(), DType::fp32, rounded.data(), dtype, piece.count);
  if (rounded == value) return;
  if (train_.changes.tracks()) train_.changes.note(id, begin, width, rounded, value);
  optim::cast(value.data(), dtype, now.data(), DType::fp32, piece.count);
  for (std::int64_t i = 0; i < piece.count; ++i)
    if (!std::equal(&value[i * width], &value[i * width] + width, &rounded[i * width]))
      own[i] = now[i];
  store.write(master, begin, DType::fp32, std::as_bytes(std::span(own)));
}

// Compares a parameter that is stored whole.
void Weights::compare_values(int param) {
  if (!train_.collective()) return;
  const Place& place = train_.place(param);
  const SegmentArrays& buffers = train_.arrays.segment(place);
  std::vector<std::byte> bytes(train_.param(param).elements * size_of(buffers.dtype));
  copy_and_wait(train_.runtime, bytes.data(), buffers[ArrayKind::parameter].of(place.offset),
                std::ssize(bytes));
  require_equal(param, bytes, "was written to by the program");
}

void Weights::require_equal(int param, std::span<const std::byte> bytes, const char* what) {
  if (!train_.collective()) return;
  const auto hash =
      std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const std::vector<std::int64_t> all =
      train_.ranks.gather_words("a comparison of values", {static_cast<std::int64_t>(hash)});
  for (int r = 1; r < std::ssize(all); ++r)
    if (all[r] != all[0])
      throw DisagreementError(
          "parameter " + train_.param(param).name + " " + what + ", and rank " + std::to_string(r) +
          " has other values than rank 0: write the same on all ranks, or let one rank's values go "
          "to all of them (Runtime::broadcast(); in Python zero.GatheredParameters(..., "
          "modifier_rank=0))");
}

// Frozen parameters may be masks, with infinities.
void Weights::require_finite(int param, std::span<const float> values, std::int64_t begin,
                             const char* call) const {
  const ParamDeclaration& declaration = train_.param(param);
  if (!declaration.options.trainable || train_.config.zero_core.allow_non_finite_weights) return;
  const auto at = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (at != values.end())
    throw UsageError(std::string(call) + ": element " +
                     std::to_string(begin + (at - values.begin())) + " of parameter " +
                     declaration.name + " is " + shortest_text(*at) +
                     "; a trained parameter and its states are finite numbers, unless "
                     "zero_core.allow_non_finite_weights is true");
}

void Weights::read(std::string_view name, std::string_view what, std::span<float> whole,
                   float scale) {
  const int index = find_param(name, std::ssize(whole), "Engine::read()");
  const ParamDeclaration& declaration = train_.param(index);
  const Place& place = train_.place(index);
  const ArrayId array = find_array(index, what);
  const DType dtype = train_.store->dtype_of(array);
  if (array.kind == ArrayKind::parameter_shard && train_.runtime.device().is_host()) {
    std::vector<std::byte> values(declaration.elements * size_of(dtype));
    gather_values(train_, index, {0, declaration.elements}, -1, values.data());
    optim::cast(values.data(), dtype, whole.data(), DType::fp32, declaration.elements);
  } else {
    const std::vector<std::byte> segment = gather_whole(train_, array);
    optim::cast(segment.data() + place.offset * size_of(dtype), dtype, whole.data(), DType::fp32,
                declaration.elements);
  }
  if (scale != 1)
    for (float& value : whole) value *= scale;
}

void Weights::stream(const StreamOptions& options,
                     const std::function<void(const WeightPiece&)>& visitor) {
  train_.require_values(" to stream");
  ValueStream stream(train_, options.budget, options.only_rank);
  for (int p = 0; p < std::ssize(train_.model.params); ++p)
    if (train_.param(p).options.trainable || !options.trainable_only)
      stream.visit(p, [&](const WeightPiece& piece) {
        if (stream.receives()) visitor(piece);
      });
}

std::shared_ptr<ChangeWindows> Weights::begin_changes(std::optional<std::uint64_t>& since,
                                                      const StreamOptions& options,
                                                      std::uint64_t& digest) {
  train_.require_values(" to stream");
  if (train_.tensor() != nullptr)
    throw UsageError(
        "Engine::changes() knows the changes of whole parameters, and tensor ranks hold parts: use "
        "Engine::stream_weights()");
  auto windows = std::make_shared<ChangeWindows>(train_, options.budget, options.only_rank);
  const std::vector<std::int64_t> given = train_.ranks.gather_words(
      "Engine::changes()", {since ? 1 : 0, std::bit_cast<std::int64_t>(since.value_or(0))});
  since = given[0] != 0 ? std::optional(std::bit_cast<std::uint64_t>(given[1])) : std::nullopt;
  const std::string values[] = {"value"};
  digest = digest_of(values, "Engine::changes()");
  const bool known = since && sent_ && train_.changes.tracks() && *since == *sent_;
  if (!known) train_.changes.begin();
  sent_ = digest;
  return known ? windows : nullptr;
}

void Weights::gather(std::string_view name, std::span<std::byte> whole, int only_rank) {
  const int index = train_.model.find(name);
  if (index < 0) throw UsageError("no parameter is named \"" + std::string(name) + "\"");
  const DType dtype = train_.arrays.segment(train_.place(index)).dtype;
  const std::int64_t elements = train_.param(index).elements;
  const bool receives = only_rank < 0 || only_rank == train_.rank();
  if (const std::int64_t bytes = receives ? elements * size_of(dtype) : 0;
      only_rank >= train_.rank_count() || std::ssize(whole) != bytes)
    throw UsageError("Engine::gather() of " + train_.param(index).name + ", in " + name_of(dtype) +
                     ", to rank " + std::to_string(only_rank) + " of " +
                     std::to_string(train_.rank_count()) + ": expected " + std::to_string(bytes) +
                     " bytes on this rank, not " + std::to_string(whole.size()));
  gather_values(train_, index, {0, elements}, only_rank, whole.data());
}

void Weights::read_unreduced_gradient(std::string_view name, std::span<float> whole, float scale) {
  const int index = find_param(name, std::ssize(whole), "Engine::read_gradient()");
  const ParamDeclaration& declaration = train_.param(index);
  if (!declaration.options.trainable)
    throw UsageError("parameter " + declaration.name + " is frozen and has no grad");
  const Place& place = train_.place(index);
  ArrayRef own = train_.plan.routes.summands(place);
  own.offset = place.offset;
  std::vector<std::byte> values(declaration.elements * size_of(own.dtype));
  copy_and_wait(train_.runtime, values.data(), train_.arrays.array(place, own), std::ssize(values));
  optim::cast(values.data(), own.dtype, whole.data(), DType::fp32, declaration.elements);
  if (train_.collective())
    train_.ranks.exchange("the gradient of " + declaration.name,
                          [&](comm::Communicator& communicator) {
                            communicator.all_reduce(whole.data(), std::ssize(whole), DType::fp32);
                          });
  for (float& value : whole) value *= scale;
}

std::uint64_t Weights::digest() {
  std::vector<std::string> arrays = {"value", "master"};
  const std::vector<std::string>& states = train_.plan.updates.state_names();
  arrays.insert(arrays.end(), states.begin(), states.end());
  return digest_of(arrays, "Engine::digest");
}

std::uint64_t Weights::digest_of(std::span<const std::string> arrays, std::string_view subject) {
  std::uint64_t sum = 0;
  for (const SegmentId& id : train_.layout().segments()) {
    if (!train_.policy().counts(train_.layout().segment(id))) continue;
    for (const std::string& name : arrays)
      if (const auto array = train_.store->find(id, name))
        sum += detail::digest_of(train_, *array, name);
  }
  std::uint64_t total = 0;
  for (const std::int64_t word :
       train_.everyone().gather_words(subject, {std::bit_cast<std::int64_t>(sum)}))
    total += std::bit_cast<std::uint64_t>(word);
  return total;
}

void Weights::materialize(int only_rank) {
  if (only_rank >= train_.rank_count())
    throw UsageError("Engine::materialize(" + std::to_string(only_rank) + "): there are " +
                     std::to_string(train_.rank_count()) + " ranks");
  const bool holds = only_rank < 0 || only_rank == train_.rank();
  if (!train_.keeps_parameters()) copy_full_model(holds);
  if (holds)
    guard_.enter<Call::materialize, Phase::full_model>();
  else
    guard_.enter<Call::materialize, Phase::full_model_elsewhere>();
}

void Weights::copy_full_model(bool holds) {
  RuntimeCore& runtime = train_.runtime;
  const auto bytes_of = [&](const SegmentId& id) {
    return train_.layout().segment(id).length * size_of(train_.arrays.segment(id).dtype);
  };
  std::int64_t bytes = 0;
  for (const SegmentId& id : train_.layout().segments()) bytes += bytes_of(id);
  if (holds) {
    full_model_ = runtime.device().reserve(bytes, Arena::Sharing::private_memory, "the full model");
    runtime.ledger().plan(MemoryCategory::parameters, full_model_.size());
    runtime.ledger().take(MemoryCategory::parameters, full_model_.size());
  }
  std::byte* end = full_model_.data();
  for (int f = 0; f < std::ssize(train_.layout().flat_units); ++f) {
    offload_.fetch_shard(f);
    transfers_.gather(f);
    runtime.communication().synchronize();
    for (const SegmentId id : train_.layout().segments_of(f)) {
      if (!holds) continue;
      copy_and_wait(runtime, end, train_.arrays.segment(id)[ArrayKind::parameter].data,
                    bytes_of(id));
      end += bytes_of(id);
    }
  }
  if (!holds) return;
  // Only after all gathers, because units that share a slot were gathered there in turn.
  std::byte* next = full_model_.data();
  for (const SegmentId& id : train_.layout().segments()) {
    slots_.push_back(std::exchange(train_.arrays.segment(id)[ArrayKind::parameter].data, next));
    next += bytes_of(id);
  }
}

void Weights::dematerialize() noexcept {
  std::size_t next = 0;
  for (const SegmentId& id : train_.layout().segments())
    if (!slots_.empty()) train_.arrays.segment(id)[ArrayKind::parameter].data = slots_[next++];
  slots_.clear();
  train_.runtime.ledger().give_back(MemoryCategory::parameters, full_model_.size());
  full_model_ = Arena();
  guard_.enter<Call::end_full_model, Phase::between_steps>();
}

}  // namespace zero::detail
