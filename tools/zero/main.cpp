#include "tools/zero/program.h"

int main(int argc, char** argv) { return zero::tool::run_program(argc, argv); }
