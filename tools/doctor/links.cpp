#include "tools/doctor/links.h"

#include <nlohmann/json.hpp>

#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::doctor {

using Json = nlohmann::json;

std::string to_json(const Links& links) {
  Json json{{"transport", links.transport}, {"hosts", links.hosts}, {"links", Json::array()}};
  for (const Link& link : links.links)
    json["links"].push_back({{"ranks", {link.first, link.second}},
                             {"transport", link.transport},
                             {"latency_seconds", link.latency_seconds},
                             {"bytes_per_second", link.bytes_per_second},
                             {"clock_offset_seconds", link.clock_offset_seconds}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Links links_of(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    Links links{json.at("transport"), json.at("hosts"), {}};
    for (const Json& each : json.at("links"))
      links.links.push_back({each.at("ranks").at(0), each.at("ranks").at(1), each.at("transport"),
                             each.at("latency_seconds"), each.at("bytes_per_second"),
                             each.at("clock_offset_seconds")});
    return links;
  } catch (const Json::exception&) {
    throw ConfigError("the ranks' measurements are not as expected: " + printable(text));
  }
}

}  // namespace zero::doctor
