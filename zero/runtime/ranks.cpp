#include "zero/runtime/ranks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "comm/places.h"
#include "zero/base/hash.h"
#include "zero/runtime/runtime_core.h"

namespace zero::detail {

std::int64_t total_bytes(const comm::Traffic& traffic) {
  std::int64_t total = 0;
  for (const std::int64_t bytes : traffic.bytes_sent) total += bytes;
  return total;
}

Ranks::Ranks(RuntimeCore& runtime)
    : runtime_(runtime),
      topology_(runtime.world().topology()),
      terms_(runtime.world().communicator().terms()) {}

Ranks::Ranks(const Ranks& others)
    : runtime_(others.runtime_),
      host_(others.host_),
      device_(others.device_),
      topology_(others.topology_),
      noun_(others.noun_),
      terms_(others.terms_) {}

comm::Communicator& Ranks::on_host() const {
  return host_ ? *host_ : runtime_.world().communicator();
}

comm::Communicator& Ranks::on_device() const {
  if (device_) return *device_;
  return host_ ? *host_ : runtime_.communicator_on_device();
}

std::unique_ptr<Ranks> Ranks::split(std::string_view subject, int color, int key) {
  auto part = std::make_unique<Ranks>(*this);
  exchange(subject,
           [&](comm::Communicator& communicator) { part->host_ = communicator.split(color, key); });
  if (!runtime_.device().is_host())
    exchange_on_device(subject, [&](comm::Communicator& communicator, Stream) {
      comm::Communicator* device = communicator.split(color, key).release();
      runtime_.watch(*device);
      part->device_ = {device, [&runtime = runtime_](comm::Communicator* ended) {
                         runtime.unwatch(*ended);
                         delete ended;
                       }};
    });
  part->topology_ = {part->host_->rank(), part->host_->size()};
  part->terms_.reduce_groups = {};
  return part;
}

void Ranks::place_on_nodes(const char* noun) {
  noun_ = noun;
  std::vector<int> nodes;
  for (const std::int64_t node :
       gather_words("the nodes of a group", {runtime_.world().topology().node}))
    nodes.push_back(static_cast<int>(node));
  topology_ = comm::places_of(topology_.rank, nodes).topology;
}

void Ranks::communicate(Transfer operation) {
  runtime_.communication().enqueue(
      [this, terms = terms_, operation = std::move(operation)](Stream stream) {
        maybe_delay();
        comm::Communicator& communicator = on_device();
        communicator.set_terms(terms);
        operation(communicator, stream);
      });
}

void Ranks::communicate_with(Ranks& others, TransferOverTwo operation) {
  communicate([&others, terms = others.terms_, operation = std::move(operation)](
                  comm::Communicator& communicator, Stream stream) {
    comm::Communicator& second = others.on_device();
    second.set_terms(terms);
    operation(communicator, second, stream);
  });
}

void Ranks::communicate_control(Transfer operation) {
  communicate(
      [this, operation = std::move(operation)](comm::Communicator& communicator, Stream stream) {
        const std::int64_t before = total_bytes(communicator.traffic());
        operation(communicator, stream);
        control_bytes_ += total_bytes(communicator.traffic()) - before;
      });
}

void Ranks::exchange(std::string_view subject,
                     const std::function<void(comm::Communicator&)>& operation) {
  if (runtime_.device().is_host())
    return exchange_on_device(
        subject, [&](comm::Communicator& communicator, Stream) { operation(communicator); });
  if (topology().size == 1) return;
  comm::Communicator& communicator = on_host();
  communicator.set_terms(terms_);
  communicator.set_subject(subject);
  const std::int64_t before = total_bytes(communicator.traffic());
  operation(communicator);
  control_bytes_ += total_bytes(communicator.traffic()) - before;
}

void Ranks::exchange_on_device(std::string_view subject, const Transfer& operation) {
  if (topology().size == 1) return;
  communicate_control([&](comm::Communicator& communicator, Stream stream) {
    communicator.set_subject(subject);
    operation(communicator, stream);
  });
  runtime_.communication().synchronize();
}

void Ranks::exchange_with(Ranks& others, std::string_view subject,
                          const TransferOverTwo& operation) {
  exchange_on_device(subject, [&](comm::Communicator& communicator, Stream stream) {
    comm::Communicator& second = others.on_device();
    second.set_terms(others.terms_);
    second.set_subject(subject);
    const std::int64_t before = total_bytes(second.traffic());
    operation(communicator, second, stream);
    control_bytes_ += total_bytes(second.traffic()) - before;
  });
}

std::vector<std::int64_t> Ranks::gather_words(std::string_view subject,
                                              const std::vector<std::int64_t>& own) {
  if (topology().size == 1) return own;
  std::vector<std::int64_t> all(own.size() * static_cast<std::size_t>(topology().size));
  exchange(subject, [&](comm::Communicator& communicator) {
    communicator.all_gather(own.data(), all.data(), static_cast<std::int64_t>(own.size()),
                            DType::int64);
  });
  return all;
}

std::vector<std::string> Ranks::gather_texts(std::string_view subject, std::string_view own) {
  const std::vector<std::int64_t> sizes = gather_words(subject, {std::ssize(own)});
  std::vector<std::int64_t> words((std::ranges::max(sizes) + 7) / 8);
  own.copy(reinterpret_cast<char*>(words.data()), own.size());
  const std::vector<std::int64_t> all = gather_words(subject, words);
  const char* at = reinterpret_cast<const char*>(all.data());
  std::vector<std::string> texts;
  for (const std::int64_t size : sizes) {
    texts.emplace_back(at, size);
    at += words.size() * sizeof(std::int64_t);
  }
  return texts;
}

bool Ranks::all_have(std::string_view subject, std::string_view text) {
  const std::vector<std::int64_t> hashes =
      gather_words(subject, {std::bit_cast<std::int64_t>(hash_of(text)), std::ssize(text)});
  for (std::size_t i = 2; i < hashes.size(); ++i)
    if (hashes[i] != hashes[i - 2]) return false;
  return true;
}

void Ranks::broadcast(std::string_view subject, std::span<std::byte> bytes, int root) {
  // Communicators move whole elements, so the remaining bytes are padded to a word.
  const std::size_t words = bytes.size() / sizeof(std::int64_t);
  const std::span<std::byte> rest = bytes.subspan(words * sizeof(std::int64_t));
  std::int64_t last = 0;
  std::ranges::copy(rest, std::as_writable_bytes(std::span(&last, 1)).begin());
  exchange(subject, [&](comm::Communicator& communicator) {
    communicator.broadcast(bytes.data(), static_cast<std::int64_t>(words), DType::int64, root);
    if (!rest.empty()) communicator.broadcast(&last, 1, DType::int64, root);
  });
  if (!rest.empty()) std::memcpy(rest.data(), &last, rest.size());
}

std::string Ranks::broadcast_text(std::string_view subject, std::string text) {
  std::int64_t size = std::ssize(text);
  broadcast(subject, std::as_writable_bytes(std::span(&size, 1)), 0);
  text.resize(static_cast<std::size_t>(size));
  broadcast(subject, std::as_writable_bytes(std::span(text)), 0);
  return text;
}

}  // namespace zero::detail
