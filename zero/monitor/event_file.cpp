#include "zero/monitor/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::detail {
namespace {

// Numbers of the fields of TensorBoard's event.proto and summary.proto, and protobuf's wire types.
enum Field : std::uint8_t { wall_time = 1, step = 2, file_version = 3, summary = 5 };
enum Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_little_endian(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i));
}

void put_tag(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | wire);
}

void put_bytes(std::string& out, int field, std::string_view value) {
  put_tag(out, field, bytes);
  put_varint(out, value.size());
  out += value;
}

std::string event_at(double seconds) {
  std::string out;
  put_tag(out, wall_time, fixed64);
  put_little_endian(out, std::bit_cast<std::uint64_t>(seconds));
  return out;
}

std::uint32_t masked(std::uint32_t crc) {
  return std::rotr(crc, 15) + 0xa282ead8u;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string file_name() {
  return "events.out.tfevents." + std::to_string(static_cast<std::int64_t>(now())) + "." +
         host_name() + "." + std::to_string(getpid()) + ".0";
}

}  // namespace

std::uint32_t crc32c(std::string_view text) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> result{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
      result[i] = crc;
    }
    return result;
  }();
  std::uint32_t crc = ~0u;
  for (const char c : text) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string scalar_event(double seconds, std::int64_t at, std::string_view tag, float value) {
  std::string entry;
  put_bytes(entry, 1, tag);
  put_tag(entry, 2, fixed32);
  put_little_endian(entry, std::bit_cast<std::uint32_t>(value));
  std::string values;
  put_bytes(values, 1, entry);
  std::string out = event_at(seconds);
  put_tag(out, step, varint);
  put_varint(out, static_cast<std::uint64_t>(at));
  put_bytes(out, summary, values);
  return out;
}

std::string version_event(double seconds) {
  std::string out = event_at(seconds);
  put_bytes(out, file_version, "brain.Event:2");
  return out;
}

std::string framed(std::string_view event) {
  std::string out;
  put_little_endian(out, static_cast<std::uint64_t>(event.size()));
  put_little_endian(out, masked(crc32c(out)));
  out += event;
  put_little_endian(out, masked(crc32c(event)));
  return out;
}

EventFile::EventFile(const std::string& folder) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  path_ = (std::filesystem::path(folder) / file_name()).string();
  std::string reason = problem ? problem.message() : out_.open(path_);
  if (reason.empty()) reason = out_.write(framed(version_event(now())));
  if (!reason.empty())
    throw ConfigError("tensorboard.output_path: " + path_ + " cannot be written: " + reason);
}

void EventFile::add(std::string_view tag, double value, std::int64_t at) {
  pending_ += framed(scalar_event(now(), at, tag, static_cast<float>(value)));
}

void EventFile::flush() {
  if (const std::string problem = out_.write(std::exchange(pending_, {})); !problem.empty())
    throw SaveError(path_ + " cannot be written: " + problem);
}

}  // namespace zero::detail
