//! Sources, sessions, records and analyses of hardware performance data.
