#include "offload/io_hook.h"

namespace zero::offload {

namespace {

IoHook& hook() {
  static IoHook instance;
  return instance;
}

}  // namespace

void set_io_hook(IoHook replacement) {
  hook() = std::move(replacement);
}

int ask_io_hook(const IoEvent& event) {
  return hook() ? hook()(event) : 0;
}

}  // namespace zero::offload
