//! How each performance-monitoring unit is programmed, as pure logic over a register port.
