#include "tools/planner/cluster_file.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/options/json_text.h"
#include "zero/base/error.h"
#include "zero/base/input_file.h"
#include "zero/base/text.h"

namespace zero::planner {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct Member {
  const char* key;
  double& (*of)(Device&);
  bool may_be_zero = false;
};

template <double Device::*member>
double& own(Device& device) {
  return device.*member;
}
template <Link Device::*link, double Link::*member>
double& of_link(Device& device) {
  return (device.*link).*member;
}
constexpr double Link::*rate = &Link::bytes_per_second;

constexpr std::array members = {
    Member{"flops16", own<&Device::flops16>},
    Member{"flops32", own<&Device::flops32>},
    Member{"product_share", own<&Device::product_share>},
    Member{"product_ramp", own<&Device::product_ramp>, true},
    Member{"attention_share", own<&Device::attention_share>},
    Member{"memory_bytes", own<&Device::memory_bytes>},
    Member{"memory_rate", own<&Device::memory_rate>},
    Member{"launch", own<&Device::launch>, true},
    Member{"exchange_share", own<&Device::exchange_share>, true},
    Member{"reserved_bytes", own<&Device::reserved_bytes>, true},
    Member{"inside_rate", of_link<&Device::inside, rate>},
    Member{"inside_latency", of_link<&Device::inside, &Link::latency>, true},
    Member{"inside_half_bytes", of_link<&Device::inside, &Link::half_bytes>, true},
    Member{"reduce_share", own<&Device::reduce_share>},
    Member{"between_rate", of_link<&Device::between, rate>},
    Member{"between_latency", of_link<&Device::between, &Link::latency>, true},
    Member{"between_half_bytes", of_link<&Device::between, &Link::half_bytes>, true},
    Member{"host_rate", of_link<&Device::host, rate>, true},
    Member{"host_latency", of_link<&Device::host, &Link::latency>, true},
    Member{"host_memory_bytes", own<&Device::host_memory_bytes>, true},
    Member{"host_memory_rate", own<&Device::host_memory_rate>, true},
    Member{"file_read_rate", own<&Device::file_read_rate>, true},
    Member{"file_write_rate", own<&Device::file_write_rate>, true}};

std::string known_keys() {
  std::string keys = "like, name, cores";
  for (const Member& member : members) keys += std::string(", ") + member.key;
  return keys;
}

[[noreturn]] void refuse(const std::string& file, const std::string& problem) {
  throw ConfigError("--device " + file + ": " + problem);
}

void set(Device& device, const std::string& key, const OrderedJson& value,
         const std::string& file) {
  if (key == "name" && value.is_string()) {
    device.name = value.get<std::string>();
    return;
  }
  if (key == "cores" && value.is_number_integer() && value >= 1 && value <= 4096) {
    device.cores = value.get<int>();
    return;
  }
  for (const Member& member : members) {
    if (key != member.key) continue;
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(number) || number < 0 || (number == 0 && !member.may_be_zero))
      refuse(file, key + " is " + printable(value.dump()) + "; expected a number above 0");
    member.of(device) = number;
    return;
  }
  const bool known = key == "name" || key == "cores";
  refuse(file, known ? key + " is " + printable(value.dump()) +
                           (key == "name" ? "; expected a text" : "; expected 1 to 4096")
                     : "has no key " + printable(key) + "; expected some of " + known_keys());
}

}  // namespace

Device read_device(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    throw ConfigError("--device " + file + ": neither a device (" + device_names() +
                      ") nor a file");
  const std::string text = read_input_file({file, "--device " + file, 1, "a device in JSON"});
  const OrderedJson json = parse_json<OrderedJson>(text, "--device " + file + ": ");
  if (!json.is_object()) refuse(file, "is no JSON object");
  const OrderedJson like = json.contains("like") ? json["like"] : OrderedJson();
  const bool named = like.is_string() && device_names().find(like) != std::string::npos;
  if (!named)
    refuse(file, "needs the key \"like\", the device that its other keys change: one of " +
                     device_names());
  Device device = load_device(like.get<std::string>());
  for (const auto& [key, value] : json.items())
    if (key != "like") set(device, key, value, file);
  return device;
}

std::string json_of(const Device& device) {
  OrderedJson json;
  json["like"] = device.gpu ? "h100" : "cpu";
  json["name"] = device.name;
  if (!device.gpu) json["cores"] = device.cores;
  Device copy = device;
  for (const Member& member : members) json[member.key] = member.of(copy);
  return json.dump(2) + "\n";
}

}  // namespace zero::planner
