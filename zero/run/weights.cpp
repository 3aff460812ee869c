#include <algorithm>
#include <bit>
#include <cstring>

#include "optim/gradient_norm.h"
#include "zero/base/hash.h"
#include "zero/run/engine_core.h"

namespace zero::detail {

namespace {

// What a fill callback finds; no initializer writes this NaN by accident.
constexpr std::uint32_t unfilled_bits = 0x7fa5c3d1u;
constexpr std::int64_t most_filled_elements = 1 << 20;  // at a time

}  // namespace

void EngineCore::require_verdicts(const char* call) {
  if (phase_ == Phase::micro_step) finish_micro_step();
  require(Phase::idle, call);
  if (device_step_) settle_steps(0);
}

void EngineCore::require_step_border(const char* call) {
  require_verdicts(call);
  runtime_.communication().synchronize();
  runtime_.compute().synchronize();
  finish_offload();
}

// Part by part, since what the callback fills is in no plan.
void EngineCore::fill_segment(int flat_unit, int segment_index, const Fill& fill,
                              const std::function<bool(int param)>& wanted) {
  const Segment& segment = flat(flat_unit).segments[segment_index];
  const std::int64_t begin = rank() * segment.shard;
  for (const Piece& piece : pieces_between(model_, segment, begin, begin + segment.shard))
    for (std::int64_t from = 0; from < piece.count && wanted(piece.param);
         from += most_filled_elements) {
      const std::int64_t count = std::min(most_filled_elements, piece.count - from);
      fill_piece({flat_unit, segment_index, ArrayKind::parameter},
                 {piece.param, piece.param_begin + from, piece.segment_begin + from, count}, fill);
    }
}

void EngineCore::fill_piece(const ArrayId& parameter, const Piece& piece,
                            const std::function<void(ParamShard)>& fill) {
  const ParamDeclaration& declaration = param(piece.param);
  std::vector<float> values(static_cast<std::size_t>(piece.count),
                            std::bit_cast<float>(unfilled_bits));
  fill({declaration.name, declaration.shape, piece.param_begin, values});
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::bit_cast<std::uint32_t>(values[i]) == unfilled_bits)
      throw UsageError("parameter " + declaration.name + " was left unfilled from element " +
                       std::to_string(piece.param_begin + static_cast<std::int64_t>(i)) +
                       " on rank " + std::to_string(rank()) +
                       "; the callback must write every value of its shard");
  const DType dtype = store_->dtype_of(parameter);
  std::vector<std::byte> rounded(static_cast<std::size_t>(piece.count * size_of(dtype)));
  optim::cast(values.data(), DType::fp32, rounded.data(), dtype, piece.count);
  store_->write(parameter, piece.segment_begin, rounded);
  const Segment& segment = flat(parameter.flat_unit).segments[parameter.segment];
  const ArrayId master{parameter.flat_unit, parameter.segment, ArrayKind::master};
  if (segment.trainable && store_->dtype_of(master) != dtype)
    store_->write(master, piece.segment_begin, std::as_bytes(std::span(values)));
}

// From the shards that were filled to wherever the placement wants copies.
void EngineCore::spread(int flat_unit, int segment_index) {
  const Segment& segment = flat(flat_unit).segments[segment_index];
  const SegmentBuffers& buffers = state_->segment(flat_unit, segment_index);
  if (!collective()) return;
  ranks_.exchange_on_device(
      subjects_[flat_unit], [&](comm::Communicator& communicator, Stream stream) {
        const Wire wire{&communicator, stream};
        if (!state_->policy().parameters_sharded)
          all_gather_whole(wire, segment, buffers.shard, buffers.whole, buffers.dtype);
        if (segment.trainable && buffers.has_master() && !state_->policy().optimizer_sharded)
          all_gather_whole(wire, segment,
                           buffers.master + rank() * segment.shard * size_of(buffers.master_dtype),
                           buffers.master, buffers.master_dtype);
      });
}

void EngineCore::fill_where(const Fill& fill, const std::function<bool(int param)>& wanted) {
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s) {
      fill_segment(static_cast<int>(f), static_cast<int>(s), fill, wanted);
      spread(static_cast<int>(f), static_cast<int>(s));
    }
  for (int p = 0; p < static_cast<int>(has_values_.size()); ++p)
    if (wanted(p)) has_values_[p] = 1;
  replicas_checked_ = false;
}

void EngineCore::initialize(const Fill& fill) {
  require_checkpoint_border("Engine::initialize()");
  finish_pending_save();
  fill_where(fill, [](int) { return true; });
}

void EngineCore::initialize_rest(const Fill& fill) {
  require_checkpoint_border("Engine::initialize_rest()");
  finish_pending_save();
  const std::vector<char> before = has_values_;
  fill_where(fill, [&](int param) { return !before[param]; });
}

void EngineCore::require_values(const std::string& purpose) const {
  const auto lacking = std::find(has_values_.begin(), has_values_.end(), char{0});
  if (lacking == has_values_.end()) return;
  const bool none = std::find(has_values_.begin(), has_values_.end(), char{1}) == has_values_.end();
  throw UsageError((none ? "the parameters have"
                         : param(static_cast<int>(lacking - has_values_.begin())).name + " has") +
                   " no values" + purpose + ": call Engine::initialize(), " +
                   (none ? "load_weights() or resume()" : "initialize_rest() or load_weights()"));
}

std::vector<std::byte> EngineCore::gather_segment(const ArrayId& array) {
  const Segment& segment = flat(array.flat_unit).segments[array.segment];
  const DType dtype = store_->dtype_of(array);
  std::vector<std::byte> whole(static_cast<std::size_t>(segment.length * size_of(dtype)));
  const std::int64_t begin = rank() * segment.shard;
  std::byte* slice = whole.data() + begin * size_of(dtype);
  if (array.kind != ArrayKind::state) {
    store_->read(array, begin, begin + segment.shard, slice);
  } else {
    for (const Piece& piece : pieces_between(model_, segment, begin, begin + segment.shard))
      if (store_->holds(array, piece.param))
        store_->read(array, piece.segment_begin, piece.segment_begin + piece.count,
                     whole.data() + piece.segment_begin * size_of(dtype));
  }
  if (!collective()) return whole;
  ranks_.exchange(subjects_[array.flat_unit], [&](comm::Communicator& communicator) {
    all_gather_whole({&communicator, {}}, segment, slice, whole.data(), dtype);
  });
  return whole;
}

void EngineCore::read(std::string_view name, std::string_view what, std::span<float> whole) {
  require_step_border("Engine::read()");
  const int index = model_.find(name);
  if (index < 0) throw UsageError("no parameter is named \"" + std::string(name) + "\"");
  const ParamDeclaration& declaration = param(index);
  if (static_cast<std::int64_t>(whole.size()) != declaration.elements)
    throw UsageError("Engine::read(): " + declaration.name + " has " +
                     std::to_string(declaration.elements) + " elements, the span has " +
                     std::to_string(whole.size()));
  const Place& place = plan_.layout.place_of_param[index];
  const std::optional<ArrayId> array = store_->find(place.flat_unit, place.segment, what);
  if (!array || !store_->holds(*array, index))
    throw UsageError("parameter " + declaration.name +
                     (array ? " is updated by a rule that" : " is frozen and") + " has no " +
                     std::string(what));
  const DType dtype = store_->dtype_of(*array);
  const std::vector<std::byte> segment = gather_segment(*array);
  optim::cast(segment.data() + place.offset * size_of(dtype), dtype, whole.data(), DType::fp32,
              declaration.elements);
  if (what == "grad")
    for (float& value : whole) value *= static_cast<float>(inverse_scale());
}

// Of this rank's elements: a sum, so that the order of parts does not matter.
std::uint64_t EngineCore::digest_of(const ArrayId& array, std::string_view kind, int only_param) {
  const Segment& segment = flat(array.flat_unit).segments[array.segment];
  const std::int64_t begin = rank() * segment.shard;
  const auto bytes = static_cast<std::size_t>(size_of(store_->dtype_of(array)));
  std::uint64_t sum = 0;
  for (const Piece& piece : pieces_between(model_, segment, begin, begin + segment.shard)) {
    if (!store_->holds(array, piece.param)) continue;
    if (only_param >= 0 && piece.param != only_param) continue;
    const std::uint64_t key = hash_of(param(piece.param).name) ^ hash_of(kind);
    std::int64_t element = piece.param_begin;
    store_->visit(array, piece.segment_begin, piece.segment_begin + piece.count, Access::read,
                  [&](std::int64_t, std::span<std::byte> part) {
                    for (std::size_t at = 0; at < part.size(); at += bytes, ++element) {
                      std::uint64_t bits = 0;
                      std::memcpy(&bits, &part[at], bytes);
                      sum += mixed(mixed(key + static_cast<std::uint64_t>(element)) + bits);
                    }
                  });
  }
  return sum;
}

std::vector<std::uint64_t> EngineCore::value_digests(const std::function<bool(int param)>& wanted) {
  std::vector<std::int64_t> words(model_.params.size());
  for (std::size_t p = 0; p < words.size(); ++p) {
    const Place& place = plan_.layout.place_of_param[p];
    if (const int param = static_cast<int>(p); wanted(param))
      words[p] = std::bit_cast<std::int64_t>(
          digest_of({place.flat_unit, place.segment, ArrayKind::parameter}, "value", param));
  }
  std::vector<std::uint64_t> digests(words.size());
  const std::vector<std::int64_t> all = ranks_.gather_words("the digests of parameters", words);
  for (std::size_t i = 0; i < all.size(); ++i)
    digests[i % words.size()] += std::bit_cast<std::uint64_t>(all[i]);
  return digests;
}

// Parameters that are not split must be alike on all ranks of the model-parallel group.
void EngineCore::check_replicas() {
  replicas_checked_ = true;
  const auto replicated = [this](int p) { return !param(p).options.split; };
  const std::vector<std::uint64_t> digests = value_digests(replicated);
  std::string lines;
  for (int p = 0; p < static_cast<int>(digests.size()); ++p)
    if (replicated(p))
      lines += param(p).name + " " + to_text(param(p).shape) + " digest " +
               std::to_string(digests[p]) + "\n";
  agree_on_text(*ranks_.model_parallel(), "replicated parameter", lines,
                "declare what each of them holds another part of with .split = true, and give the "
                "others equal values");
}

std::uint64_t EngineCore::digest() {
  require_step_border("Engine::digest()");
  std::vector<std::string> kinds = {"value", "master"};
  kinds.insert(kinds.end(), state_->policy().optimizer_states.begin(),
               state_->policy().optimizer_states.end());
  std::uint64_t sum = 0;
  for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
    for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s)
      for (const std::string& kind : kinds)
        if (const auto array = store_->find(static_cast<int>(f), static_cast<int>(s), kind))
          sum += digest_of(*array, kind);
  std::uint64_t total = 0;
  for (const std::int64_t word :
       ranks_.gather_words("Engine::digest", {std::bit_cast<std::int64_t>(sum)}))
    total += std::bit_cast<std::uint64_t>(word);
  return total;
}

}  // namespace zero::detail
