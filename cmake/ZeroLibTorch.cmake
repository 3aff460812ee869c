# zero_libtorch(NAME ROOT): NAME as an interface of the libraries of the torch package in the folder ROOT. It serves the build
# and the installed package alike.
function(zero_libtorch name root)
  add_library(${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name} SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
  # libtorch is compiled with NDEBUG, and some of its inline functions assert facts that only a debug build of it keeps.
  target_compile_definitions(${name} INTERFACE NDEBUG)
  # Some libraries register their operators when they are loaded: the linker may not drop them.
  target_link_libraries(${name} INTERFACE
    -Wl,--push-state,--no-as-needed ${root}/lib/libtorch_cpu.so ${root}/lib/libtorch.so ${root}/lib/libc10.so
    -Wl,--pop-state)
  target_link_options(${name} INTERFACE -Wl,-rpath,${root}/lib)
endfunction()
