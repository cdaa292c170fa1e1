// Numbers as the console shows them: short, with units, and a dash for what is not known.

'use strict';

const numbers = (() => {
  const whole = new Intl.NumberFormat('en');
  const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 2 });
  const UNKNOWN = '–';
  const known = (value) => value !== null && value !== undefined;
  const count = (value) => {
    if (!known(value)) return UNKNOWN;
    return value < 1e6 ? whole.format(value) : short.format(value);
  };
  const perSecond = (value) => {
    if (!known(value)) return UNKNOWN;
    return value === 0 || value >= 9.95 ? count(Math.round(value)) : value.toFixed(1);
  };
  const digits = (value) => (value < 9.995 ? value.toFixed(1) : value.toFixed(0));
  const ms = (value) => {
    if (!known(value)) return UNKNOWN;
    if (value === 0) return '0';
    if (value < 0.9995) return `${digits(value * 1e3)} µs`;
    if (value < 999.5) return `${digits(value)} ms`;
    return duration(value / 1e3);
  };
  const duration = (seconds) => {
    if (!known(seconds)) return UNKNOWN;
    if (seconds < 59.95) return `${seconds < 9.95 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;
    const minutes = Math.floor(seconds / 60);
    if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
    const hours = Math.floor(minutes / 60);
    if (hours < 48) return `${hours} h ${minutes % 60} min`;
    return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  };
  const bytes = (value) => {
    if (!known(value)) return UNKNOWN;
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0;
    while (value >= 1024 && unit + 1 < units.length) {
      value /= 1024;
      unit += 1;
    }
    return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
  };

  return { bytes, count, duration, known, ms, perSecond, UNKNOWN };
})();
