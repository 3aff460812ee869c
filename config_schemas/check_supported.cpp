#include <algorithm>

#include "config_schemas/resolve.h"
#include "config_schemas/values.h"
#include "zero/plan/placement.h"

namespace zero::config_schemas {
namespace {

enum class Switch : std::uint8_t { none, on, off };

bool says_true(const Node& node) {
  if (node.kind == Node::Kind::number) return node.text == "1";
  const std::string text = lower_case(node.text);
  return (node.kind == Node::Kind::boolean || node.kind == Node::Kind::string) && text == "true";
}

// Returns the value of "enabled" in the block or in a block inside it. The recursion is bounded,
// since documents are at most 32 levels deep.
Switch switch_in(const Node& block) {
  Switch result = Switch::none;
  for (const Member& member : block.members) {
    Switch inside = switch_in(member.value);
    if (member.key == "enabled" && member.value.kind != Node::Kind::object)
      inside = says_true(member.value) ? Switch::on : Switch::off;
    if (inside == Switch::on) return Switch::on;
    if (inside == Switch::off) result = Switch::off;
  }
  return result;
}

// Effect that a file requests by a key that is not `honored`, or not at every stage.
enum class Demand : std::uint8_t {
  nothing,    // only the engine's existing behavior
  elsewhere,  // something that has no effect with this placement
  off,        // a block that is switched off
  effect,
};

class SupportCheck {
 public:
  SupportCheck(const Resolution& resolution, const Conversions& conversions, ProblemList& problems)
      : resolution_(resolution), conversions_(conversions), problems_(problems) {}

  std::vector<std::string> run() {
    for (const auto& [today, old] : conversions_)
      notices_.push_back(old + ": an old form of " + today + ", and read as such");
    for (const ParsedValue& given : resolution_.given)
      if (given.usable &&
          (given.key->status != Status::honored || given.key->sharded_parameters_only))
        check_supported(given);
    for (const auto& [reason, keys] : without_effect_)
      notices_.push_back(keys + ": no effect here: " + reason);
    return std::move(notices_);
  }

 private:
  void check_supported(const ParsedValue& given) {
    const Key& key = *given.key;
    switch (demand(given)) {
      case Demand::nothing:
        if (key.removed)
          notices_.push_back(given.path +
                             ": asks for nothing here, and DeepSpeed 0.19 refuses it; remove it");
        return;
      case Demand::off:
        notices_.push_back(given.path + ": switched off, and " +
                           (key.removed ? "refused by DeepSpeed 0.19 all the same; remove it"
                                        : "not supported by this version"));
        return;
      case Demand::elsewhere:
        add_notice(given, "acts at stage 3 only");
        return;
      case Demand::effect:
        if (key.status == Status::no_effect)
          add_notice(given, std::string(key.reason));
        else
          refuse(given);
    }
  }

  Demand demand(const ParsedValue& given) const {
    const Key& key = *given.key;
    if (!key.switched_by.empty() && !acts(key.switched_by)) return Demand::nothing;
    if (key.type == Type::block) return demand_of_block(given);
    if (key.status == Status::honored)
      return shards_parameters() || given.shown == show_default(key) ? Demand::nothing
                                                                     : Demand::elsewhere;
    if (asks_for_nothing(key, given.shown, resolution_.config)) return Demand::nothing;
    if (key.sharded_parameters_only && !shards_parameters()) return Demand::elsewhere;
    return Demand::effect;
  }

  static Demand demand_of_block(const ParsedValue& given) {
    const Key& key = *given.key;
    const Switch state = switch_in(*given.node);
    if (key.status == Status::no_effect)
      return given.node->members.empty() || state == Switch::off ? Demand::nothing : Demand::effect;
    const bool present = key.on_by_presence && state == Switch::none;
    return state == Switch::on || present ? Demand::effect : Demand::off;
  }

  // Returns true if the switch is on and was not refused.
  bool acts(std::string_view path) const {
    const ParsedValue* given = find(resolution_.given, path);
    return given != nullptr && given->shown == "true" && (given->key->status != Status::refused);
  }

  bool shards_parameters() const {
    const Config& config = resolution_.config;
    return detail::strategy_for(config.zero_optimization, config.zero_core).parameter ==
           detail::Placement::shard;
  }

  void refuse(const ParsedValue& given) {
    const auto old = conversions_.find(path_of(given));
    const std::string from = old == conversions_.end() ? "" : " (written as " + old->second + ")";
    const std::string value = given.key->type == Type::block ? "" : " " + quoted(given);
    problems_.add(given.node->position, given.path + from + ":" + value +
                                            " is refused: " + std::string(given.key->reason));
  }

  static std::string quoted(const ParsedValue& given) {
    return given.node->kind == Node::Kind::string ? "\"" + given.shown + "\"" : given.shown;
  }

  // Keys with the same reason share one line, at the position of the first.
  void add_notice(const ParsedValue& given, const std::string& reason) {
    std::string text = given.path;
    const Node::Kind kind = given.node->kind;
    if (kind != Node::Kind::object && kind != Node::Kind::array) text += " " + quoted(given);
    for (auto& [known, keys] : without_effect_)
      if (known == reason) {
        keys += ", " + text;
        return;
      }
    without_effect_.emplace_back(reason, text);
  }

  const Resolution& resolution_;
  const Conversions& conversions_;
  ProblemList& problems_;
  std::vector<std::string> notices_;
  std::vector<std::pair<std::string, std::string>> without_effect_;
};

}  // namespace

bool asks_for_nothing(const Key& key, std::string_view shown, const Config& config) {
  if (key.already_so != nullptr && key.already_so(config, shown)) return true;
  return (!key.initial.empty() && shown == key.initial) ||
         std::ranges::find(key.harmless, shown) != key.harmless.end();
}

std::vector<std::string> check_supported(const Resolution& resolution,
                                         const Conversions& conversions, ProblemList& problems) {
  return SupportCheck(resolution, conversions, problems).run();
}

}  // namespace zero::config_schemas
