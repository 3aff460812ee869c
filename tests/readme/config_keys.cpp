// Prints the path of every honored config key, for the check of the README.
#include <cstdio>
#include <string>

#include "config_schemas/keys.h"

int main() {
  using namespace zero::config_schemas;
  for (const Key& key : keys())
    if (key.status == Status::honored && key.type != Type::section)
      std::printf("%s\n", std::string(key.path).c_str());
}
