// Keys that are not in the table. DeepSpeed refuses such keys in some sections and ignores them
// elsewhere, although a typing error silently changes a training run there.
#include <algorithm>

#include "config_schemas/resolve.h"
#include "config_schemas/values.h"
#include "zero/base/text.h"

namespace zero::config_schemas {
namespace {

// A search for the nearest key takes time, so a hostile file must not trigger many searches.
constexpr std::size_t most_guesses = 100;
constexpr std::size_t most_named = 20;  // in one notice

class UnknownKeyCheck {
 public:
  UnknownKeyCheck(const Resolution& resolution, ProblemList& problems)
      : resolution_(resolution), problems_(problems) {}

  void examine(const UnknownKey& unknown) {
    if (is_closed(unknown.section))
      problems_.unknown_key(unknown.member->position, unknown.path);
    else if (guesses_++ < most_guesses)
      judge(unknown, guess_key(unknown.path));
    else
      ignored_.push_back(printable(unknown.path));
  }

  std::vector<std::string> take_notices() {
    if (!ignored_.empty())
      notices_.push_back(list_of(ignored_, most_named) +
                         ": no effect here: DeepSpeed has no such key either, and ignores it");
    return std::move(notices_);
  }

 private:
  void judge(const UnknownKey& unknown, const Guess& guess) {
    const Position at = unknown.member->position;
    switch (guess.kind) {
      case Guess::Kind::slip:
        problems_.unknown_key(at, unknown.path, guess);
        return;
      case Guess::Kind::part:
        if (find(resolution_.given, guess.key->path) == nullptr &&
            demand(*guess.key, unknown.member->value) == Demand::effect)
          problems_.unknown_key(at, unknown.path, guess);
        else
          ignored_.push_back(printable(unknown.path));
        return;
      case Guess::Kind::elsewhere:
        misplaced(unknown, guess);
        return;
      default:
        ignored_.push_back(printable(unknown.path));
    }
  }

  void misplaced(const UnknownKey& unknown, const Guess& guess) {
    switch (demand(*guess.key, unknown.member->value)) {
      case Demand::effect:
        problems_.add(unknown.member->position, printable(unknown.path) +
                                                    ": DeepSpeed passes over it here; " +
                                                    place_of(*guess.key, guess.path));
        return;
      case Demand::nothing:
        notices_.push_back(printable(unknown.path) + ": its place is " + guess.path +
                           "; here it has no effect, and there it would change nothing");
        return;
      case Demand::other:
        ignored_.push_back(printable(unknown.path));
    }
  }

  static std::string place_of(const Key& key, const std::string& path) {
    if (key.status == Status::refused)
      return "its place would be " + path + ": " + std::string(key.reason);
    return "its place is " + (key.status == Status::replaced ? std::string(key.reason) : path);
  }

  // Effect that the value would have at the place of the known key.
  enum class Demand : std::uint8_t {
    nothing,  // requests the existing behavior
    effect,
    other,  // the known key takes no such value, so the name must mean something else
  };

  Demand demand(const Key& key, const Node& node) const {
    const auto effect_if = [](bool acts) { return acts ? Demand::effect : Demand::nothing; };
    if (key.type == Type::section || key.type == Type::block) {
      if (node.kind != Node::Kind::object) return Demand::other;
      if (key.type == Type::block)
        return effect_if(key.status != Status::no_effect && !node.members.empty());
      return effect_if(std::ranges::any_of(node.members, [&](const Member& member) {
        const Key* inside = find_key(key.path, member.key);
        return inside != nullptr && demand(*inside, member.value) == Demand::effect;
      }));
    }
    if (key.status == Status::no_effect) return Demand::nothing;
    Config config = resolution_.config;
    const Outcome outcome = set_value(key, "", node, config);
    if (!outcome.problem.empty()) return Demand::other;
    if (key.status == Status::replaced) return effect_if(outcome.shown == "true");
    if (key.status == Status::refused)
      return effect_if(!asks_for_nothing(key, outcome.shown, resolution_.config));
    Config effective = resolution_.config;
    return effect_if(outcome.shown != show_value(key, "", effective));
  }

  const Resolution& resolution_;
  ProblemList& problems_;
  std::vector<std::string> notices_, ignored_;
  std::size_t guesses_ = 0;
};

}  // namespace

std::vector<std::string> check_unknown_keys(const std::vector<UnknownKey>& keys,
                                            const Resolution& resolution, ProblemList& problems) {
  UnknownKeyCheck check(resolution, problems);
  for (const UnknownKey& unknown : keys) check.examine(unknown);
  return check.take_notices();
}

}  // namespace zero::config_schemas
